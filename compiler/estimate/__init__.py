"""What a network should take, before there is a program."""

"""What operators mean in terms of simpler ones, one module for each family."""

"""One function per figure, from DataFrame to matplotlib figure."""

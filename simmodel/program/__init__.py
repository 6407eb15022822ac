"""Programs: instruction streams and regions, their text, their bits, and the loadable file."""

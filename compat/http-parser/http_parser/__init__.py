"""What pymesos needs of the distribution http-parser, in Python alone."""

"""What knows data and no models: base values, encodings of categories, and input densities."""

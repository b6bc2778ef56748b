"""Episodes on disk: a Zarr v3 store, training windows, collection, and the field's HDF5 files."""

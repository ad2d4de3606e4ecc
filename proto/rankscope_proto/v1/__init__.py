"""Generated protobuf code; made by `make proto`."""

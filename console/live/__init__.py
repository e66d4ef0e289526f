"""What keeps open pages up to date: a board per process and the streams that read it."""

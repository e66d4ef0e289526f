"""The living parts of pages: reads turned into HTML, for the first answer and for the stream."""

"""Reading samples and their labels from files: CSV, Parquet, arrays, images, Hugging Face.

`source.py` says what to read, `agreed.py` what all peers have in common, `read.py` reads it, and
`class_numbers.py` makes class numbers of labels. Nothing that is read is unpickled or run, and no
network is used.
"""

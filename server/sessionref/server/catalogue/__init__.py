"""What was learnt from sessions, so that it need not be read again: an index in memory, a catalogue on disk.

The stores' files are the truth; all that is here costs speed when it is missing, never an answer.
"""

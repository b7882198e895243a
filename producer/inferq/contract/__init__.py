"""The agreement between programs that ask and programs that answer.

Everything in this package is pure: names, messages, tensors, errors and the text of the Lua
scripts. It opens no connection and imports neither the producers nor the worker.
"""

"""SQL over documented views: text -> tree -> checked tree -> our own text + parameters, looked at once more.

No text of a user is ever sent to the store: what is sent is written anew from a tree of allowed nodes only.
"""

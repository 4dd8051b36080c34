"""SQL statements as servers log them: one lexer, and what a statement does to tables. Pure.

`lexer` splits a text into tokens as the server did, `cursor` walks over them, `alter`, `columns`
and `options` are the grammar of what is understood completely, `dml` and `statements` classify.

Invariant: what is not understood down to its last token is a doubt, never harmless.
"""

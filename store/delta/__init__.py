"""Delta tables without Spark: their log, their files, their deletion vectors.

Lives here: everything of Delta's PROTOCOL.md that Ratchet reads or writes by itself. Does not live
here: what is in the mirrored tables and who changes it (`merge`, `snapshot`), the records that are
kept in such tables (`store.rounds`, `store.cuts`).

    actions    the log's entries as values, from and to JSON
    log        the newest state of a table, by replaying its log; commits, checkpoints
    commits    commits that a later run's epoch refuses; transaction ids
    tables     tables that are created, get columns or properties, and are asked by deltalake
    appendlog  a small table as a log of numbered rows
    datafiles  rows into a new data file; stats: what the log says of them
    vectors    which rows of a file are gone
    parquet    reading data files, whoever wrote them
    errors     deltalake's errors as ours

One seam: everything that changes a table through this package goes through `commits.commit_files`.
A library that could write deletion vectors under a transaction id and against one stated version
would take its place, and that of `log`, `vectors` and `datafiles`.
"""

"""Real, private servers for the demo, the tests and the benchmarks.

Lives here: finding or unpacking the servers' programs (`provision`, `debs`, `cache`), starting,
killing and removing them (`servers`, `server`, `daemon`, `ports`, `template`), folders that are
ours alone (`places`), throw-away certificates (`tls`), the accounts and replication links that a
set-up needs (`accounts`, `replication`), and a Spark cluster (`cluster`). The front door is
`lab.servers`. Does not live here: anything of Ratchet itself. The lab imports no other package of
the project but `core.errors` and what is below all packages (`resources`, `owned`), and nothing
outside jobs, tests and benchmarks imports the lab.

Invariant: a server listens on the loopback address only, and ends with the process that started
it, however that process ends. Only processes started here are ever signalled, by their id.
"""

//! The ledger: its rules, limits and promises. One program, since each program is linked with most of the ledger.

mod begin_anew;
mod bounded_history;
mod bounded_txn;
mod contradictions;
mod damage;
mod hostile;
mod keyspace;
mod large;
mod limits;
mod model;
mod outcomes;
mod promises;
mod registry;
mod registry_values;
mod scripts;
mod support;
mod values;

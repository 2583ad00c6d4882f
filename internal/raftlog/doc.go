// Package raftlog is the only way to write replicated state. It turns commands, which are opaque
// bytes to it, into log entries that a majority of the members has on disk, and passes them in the
// same order, on every member, to the state machine (FSM).
//
// It decides who leads, what is committed and in which order, when a snapshot makes an entry
// unnecessary, and whether this member may continue. It decides that from its peers' messages and
// its own disk. It never looks into a command, never answers a command before a majority has it on
// disk, and never repairs a member whose disk or state it no longer trusts: such a member stops,
// its data is set aside, and it rejoins as a new one.
//
// It is built on hashicorp/raft with raft-boltdb, and adds what that library lacks (each has a test
// that fails without it):
//
//   - heartbeats are handled on raft's main loop (transport.go); handled
//     concurrently, as the library does, a deposed leader can stamp an entry with
//     its successor's term, and replicas then diverge permanently
//     (hashicorp/raft#695);
//   - every entry, every stored record and every snapshot frame carries a CRC
//     (envelope.go, store.go, snapshot.go); bbolt checks none of its data pages;
//   - a disk that hangs ends the process (watchdog.go); otherwise a leader whose
//     disk hangs never steps down (hashicorp/raft#503);
//   - a digest of the state is agreed every ten seconds (checkpoint.go);
//   - a read asks a majority for its term (read.go), since the library's
//     VerifyLeader counts answers that were under way before it was asked;
//   - a member is identified by its ID and by the incarnation of its data
//     directory (identity.go), so a wiped member cannot vote again in a term in
//     which it has already voted.
//
// The comments of envelope.go, store.go and snapshot.go describe the file formats.
package raftlog

// Package raftlog is the one door for writing replicated state. It turns
// commands, which are opaque bytes to it, into log entries agreed by a majority
// of the members and durable on their disks, and hands them in the same order,
// on every member, to the state machine (FSM).
//
// It decides: who leads, what is agreed and in which order, when an entry may be
// forgotten because a snapshot holds it, and whether this member may go on. It
// decides that from what its peers say, from its own disk, and from nothing else.
// It never looks into a command, never answers a command before a majority has
// it on disk, and never repairs a member whose disk or state it no longer trusts:
// such a member stops, its data is set aside, and it comes back as a new one.
//
// Underneath is hashicorp/raft with raft-boltdb. What this package adds is what
// that library was found to lack (each has a test that fails without it):
//
//   - heartbeats are handled on raft's main loop (transport.go); handled beside
//     it, as the library does, a deposed leader can stamp an entry with its
//     successor's term, and replicas then differ for ever (hashicorp/raft#695);
//   - every entry, every stored record and every snapshot frame carries a CRC
//     (envelope.go, store.go, snapshot.go); bbolt checks none of its data pages;
//   - a disk that hangs ends the process (watchdog.go); otherwise a leader whose
//     disk hangs leads for ever (hashicorp/raft#503);
//   - a digest of the state is agreed every ten seconds (checkpoint.go);
//   - a read asks a majority for its term (read.go), since the library's
//     VerifyLeader counts answers that were under way before it was asked;
//   - a member is known by its id and by the incarnation of its data directory
//     (identity.go), so a wiped member cannot vote again in a term in which it
//     has already voted.
//
// The format of the files it writes is in the comments of envelope.go, store.go
// and snapshot.go.
package raftlog

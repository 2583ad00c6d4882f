package raftlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/greylag/greylag/internal/boltcheck"
)

// Recovery reports what Recover kept and what may be lost.
type Recovery struct {
	LastIndex, LastTerm    uint64 // everything up to here is kept, and counts as committed
	Snapshot               uint64 // the newest entry in its first snapshot; 0: no snapshot
	DamagedFrom, DamagedTo uint64 // entries that could not be read and were dropped; 0 if none
	Members                []Member
	Unmarked               bool // the directory had been marked as damaged
}

// String describes it for the operator.
func (r Recovery) String() string {
	text := fmt.Sprintf("kept everything up to entry %d; entries that other members committed after it are lost", r.LastIndex)
	if r.DamagedFrom != 0 {
		text += fmt.Sprintf("; entries %d to %d were damaged and are lost", r.DamagedFrom, r.DamagedTo)
	}
	return text
}

// Recover lets a member lead again whose peers are lost permanently. The daemon must be stopped. It
// reads the newest whole snapshot and the log after it up to the first damaged entry, writes a
// snapshot with the given members, and empties the log. Entries that this member holds but that
// were never committed count as committed from then on; entries that only the lost members held are
// gone.
//
// Members other than this one must have belonged to the cluster, and Recover must be run on each of
// them with the same list. The safe way is this member alone, and AddMember for new ones: an empty
// list means that, at cfg.Addr. Otherwise only ClusterID, Dir, Clock and Logger of cfg matter. fsm
// must not be used afterwards.
func Recover(cfg Config, fsm FSM, members []Member) (Recovery, error) {
	cfg = cfg.withDefaults()
	r, err := openRecovery(cfg)
	if err != nil {
		return Recovery{}, err
	}
	defer r.store.close()
	renamed := checkRemoved(cfg.Dir, r.self) != nil
	if renamed { // the cluster refuses the old ID
		r.self.ID, r.self.MemberAt = MintID(), 0
	}
	if len(members) == 0 {
		members = []Member{{ID: r.self.ID, Addr: cfg.Addr, Voter: true}}
	}
	servers, err := recoveredServers(r.self, members, knownServers(r.store, r.snap))
	if err != nil {
		return Recovery{}, err
	}
	report, err := readable(r.store, r.snap)
	if err != nil {
		return report, err
	}
	if report.DamagedFrom != 0 {
		if err := r.store.DeleteRange(report.DamagedFrom, report.DamagedTo); err != nil {
			return report, fmt.Errorf("raftlog: recover: drop entries %d to %d: %w", report.DamagedFrom, report.DamagedTo, err)
		}
	}
	report.Members = members
	if err := r.begin(cfg.Dir, report.LastTerm); err != nil {
		return report, err
	}
	if err := r.rewrite(cfg, fsm, servers); err != nil {
		return report, err
	}
	if renamed {
		err := errors.Join(writeJSON(filepath.Join(cfg.Dir, identityFile), r.self), os.Remove(filepath.Join(cfg.Dir, removedFile)))
		if err != nil {
			return report, fmt.Errorf("raftlog: recover: %w", err)
		}
	}
	err = os.Remove(filepath.Join(cfg.Dir, quarantineFile))
	report.Unmarked = err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return report, fmt.Errorf("raftlog: recover: %w", err)
	}
	return report, nil
}

// Recoverable reports what Recover would keep, and the latest members, including this one. It
// changes nothing. Only ClusterID, Dir and Logger of cfg matter.
func Recoverable(cfg Config) (report Recovery, self string, err error) {
	r, err := openRecovery(cfg.withDefaults())
	if err != nil {
		return report, "", err
	}
	defer r.store.close()
	if report, err = readable(r.store, r.snap); err != nil {
		return report, "", err
	}
	for _, s := range knownServers(r.store, r.snap) {
		t, err := parseTarget(string(s.Address))
		if err != nil {
			return report, "", err
		}
		report.Members = append(report.Members, Member{ID: string(s.ID), Addr: t.addr, Voter: s.Suffrage == raft.Voter})
	}
	return report, r.self.ID, nil
}

// recovery is a stopped member's data on disk.
type recovery struct {
	self  identity
	store *logStore // to be closed
	snap  *snapshots
}

func openRecovery(cfg Config) (r recovery, err error) {
	if _, err := os.Stat(filepath.Join(cfg.Dir, identityFile)); err != nil {
		return r, fmt.Errorf("raftlog: recover: %w", err)
	}
	if r.self, err = loadIdentity(cfg); err != nil {
		return r, err
	}
	if r.snap, err = openSnapshots(cfg); err != nil {
		return r, err
	}
	if err := r.check(cfg.Dir); err != nil {
		return r, fmt.Errorf("raftlog: recover: %w", err)
	}
	if r.store, err = openStore(cfg.Dir, newReserve(cfg.Dir, 0, cfg.Logger)); err != nil {
		return r, fmt.Errorf("raftlog: recover: %w", err)
	}
	r.snap.store = r.store
	return r, nil
}

// check refuses what cannot be opened. A missing log is allowed if a snapshot holds a state, and a
// log without its newest transaction is read as it is.
func (r recovery) check(dir string) error {
	path := filepath.Join(dir, databaseFile)
	_, err := boltcheck.Tree(path)
	switch {
	case err == nil || errors.Is(err, boltcheck.ErrMetaLost):
		return nil
	case r.snap.newest().Index == 0:
		return fmt.Errorf("%s: %w: there is no snapshot either: restore a backup with gctld restore into an empty data_dir", path, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, boltcheck.ErrDamaged):
		return fmt.Errorf("%s: %w: to continue from the newest snapshot and lose later entries, run: mv %s %s.damaged", path, err, path, path)
	}
	return err
}

// begin makes raft.db one of this directory, whose term is not older than term.
func (r recovery) begin(dir string, term uint64) error {
	owner, err := r.store.GetUint64(keyOwner)
	if err == nil && owner != r.self.Incarnation {
		return fmt.Errorf("raftlog: recover: %w: %s belongs to another data directory", ErrIdentity, filepath.Join(dir, databaseFile))
	}
	if err := r.store.begin(dir, r.self); err != nil {
		return err
	}
	if err := r.store.storeMax(keyTerm, term); err != nil {
		return fmt.Errorf("raftlog: recover: %w", err)
	}
	// A snapshot that was lost is ignored; the next one is recorded when it is taken.
	if err := r.store.SetUint64(keySnapshotKept, 0); err != nil {
		return fmt.Errorf("raftlog: recover: %w", err)
	}
	return nil
}

// rewrite replays the log into a new snapshot with the given servers.
func (r recovery) rewrite(cfg Config, fsm FSM, servers []raft.Server) error {
	machine := newMachine(fsm, r.snap)
	var halted error
	machine.halt = func(_ int, _ bool, reason string) { halted = errors.New(reason) }
	machine.joined = func(configuration) {}
	_, trans := raft.NewInmemTransport("recover")
	err := raft.RecoverCluster(raftConfig(cfg, r.self, cfg.Logger), machine, r.store, r.store, r.snap, trans, raft.Configuration{Servers: servers})
	if err = errors.Join(err, halted); err != nil {
		return fmt.Errorf("raftlog: recover: %w", err)
	}
	return nil
}

// readable is the newest whole snapshot and the log after it, up to its first damaged entry.
func readable(store *logStore, snap *snapshots) (Recovery, error) {
	base, term, err := newestWhole(snap)
	if err != nil {
		return Recovery{}, err
	}
	last, err := store.LastIndex()
	if err != nil {
		return Recovery{}, fmt.Errorf("raftlog: recover: %w", err)
	}
	first, err := store.FirstIndex()
	if err != nil {
		return Recovery{}, fmt.Errorf("raftlog: recover: %w", err)
	}
	if first > base+1 {
		return Recovery{}, fmt.Errorf("raftlog: recover: %w: the log begins at entry %d and no snapshot reaches it: restore a backup with gctld restore into an empty data_dir", errSnapshot, first)
	}
	report := Recovery{LastIndex: max(base, last), LastTerm: term, Snapshot: base}
	for index := base + 1; index <= last; index++ {
		var log raft.Log
		err := store.readEntry(index, &log)
		if err == nil && log.Type == raft.LogCommand && !sealed(log.Data) {
			err = errEnvelope
		}
		if err != nil {
			report.LastIndex, report.DamagedFrom, report.DamagedTo = index-1, index, last
			break
		}
		report.LastTerm = log.Term
	}
	return report, nil
}

// newestWhole returns the index of the newest readable snapshot, 0 if none exists.
func newestWhole(snap *snapshots) (index, term uint64, err error) {
	list, err := snap.List()
	if err != nil {
		return 0, 0, fmt.Errorf("raftlog: recover: %w", err)
	}
	for _, meta := range list {
		if _, rc, err := snap.Open(meta.ID); err == nil {
			rc.Close()
			return meta.Index, meta.Term, nil
		}
	}
	if len(list) > 0 {
		return 0, 0, fmt.Errorf("raftlog: recover: no snapshot can be read: %w", snap.lastFailure())
	}
	return 0, 0, nil
}

// recoveredServers gives each member the incarnation it had in the cluster.
func recoveredServers(self identity, members []Member, known []raft.Server) ([]raft.Server, error) {
	var servers []raft.Server
	mine := false
	for _, m := range members {
		if err := errors.Join(checkID(m.ID), checkAddr(m.Addr)); err != nil {
			return nil, fmt.Errorf("raftlog: recover: %w", err)
		}
		t := target{id: m.ID, addr: m.Addr}
		if m.ID == self.ID {
			mine, t.incarnation = true, self.Incarnation
		}
		for _, s := range known {
			if old, err := parseTarget(string(s.Address)); err == nil && string(s.ID) == m.ID && t.incarnation == 0 {
				t.incarnation = old.incarnation
			}
		}
		if t.incarnation == 0 {
			return nil, fmt.Errorf("raftlog: recover: %w: %s; add it after the recovery", ErrNoMember, m.ID)
		}
		suffrage := raft.Nonvoter
		if m.Voter {
			suffrage = raft.Voter
		}
		servers = append(servers, raft.Server{Suffrage: suffrage, ID: raft.ServerID(m.ID), Address: t.stored()})
	}
	if !mine {
		return nil, fmt.Errorf("raftlog: recover: this member, %s, is not in the list", self.ID)
	}
	return servers, nil
}

// knownServers returns the newest membership in the log or a snapshot, as far as they can be read.
// store may be nil.
func knownServers(store *logStore, snap *snapshots) (servers []raft.Server) {
	var newest uint64
	list, _ := snap.List() // none readable: nothing known from them
	for _, meta := range list {
		if meta.ConfigurationIndex >= newest {
			newest, servers = meta.ConfigurationIndex, meta.Configuration.Servers
		}
	}
	if store == nil {
		return servers
	}
	defer func() { _ = recover() }() // bbolt panics on damaged pages: what was found so far is used
	first, err := store.db.FirstIndex()
	if err != nil || first == 0 {
		return servers
	}
	last, err := store.db.LastIndex()
	if err != nil {
		return servers
	}
	for index := last; index >= first && index > newest; index-- {
		var log raft.Log
		if store.readEntry(index, &log) == nil && log.Type == raft.LogConfiguration {
			return raft.DecodeConfiguration(log.Data).Servers
		}
	}
	return servers
}

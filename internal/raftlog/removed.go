package raftlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
)

// removedFile, in Config.Dir, records that the member was removed from the cluster.
const removedFile = "removed.json"

// removal is the content of removedFile.
type removal struct {
	ID string
	At time.Time
}

// checkRemoved returns ErrRemoved if the member of the directory was removed.
func checkRemoved(dir string, self identity) error {
	text, err := os.ReadFile(filepath.Join(dir, removedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var r removal
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return fmt.Errorf("raftlog: %s: %w", filepath.Join(dir, removedFile), err)
	}
	if r.ID != self.ID { // an earlier member's, whose data was set aside
		return nil
	}
	return fmt.Errorf("%w: %s, on %s", ErrRemoved, r.ID, r.At.UTC().Format(time.DateTime+" MST"))
}

// EndRemoved ends this member with ErrRemoved, as the cluster reported its removal. Later
// calls of Open on the same directory fail with ErrRemoved.
func (l *Log) EndRemoved() { l.end(ErrRemoved) }

// markRemoved records the removal in the directory.
func (l *Log) markRemoved() {
	err := writeJSON(filepath.Join(l.cfg.Dir, removedFile), removal{ID: l.self.ID, At: l.cfg.Clock()})
	if err != nil {
		l.log.Error("cannot record that this member was removed", "err", err)
	}
}

// retired reports whether a member id was removed permanently.
func (l *Log) retired(id string) bool { return l.cfg.Retired != nil && l.cfg.Retired(id) }

// refusesMember reports whether connections of a member are refused. A retired id is accepted until the
// configuration without it is committed: until then the cluster may need its vote.
func (l *Log) refusesMember(id string) bool {
	if !l.retired(id) {
		return false
	}
	agreed := l.machine.configuration().servers
	_, member := find(agreed, id)
	return !member && len(agreed) > 0
}

// joined is called with every committed configuration: a member that was in the cluster and no
// longer is stops. One that replays the log may meet configurations from before it was added.
func (l *Log) joined(c configuration) {
	in := l.isSelf(c.servers)
	l.noteConfiguration(c, in)
	if in {
		l.wasMember.Store(true)
	} else if at := l.memberAt.Load(); at != 0 && c.index > at && len(c.servers) > 0 {
		l.end(ErrRemoved)
	}
	l.mux.dropRefused()
}

// isSelf reports whether this member is among servers, with the data that it has now.
func (l *Log) isSelf(servers []raft.Server) bool {
	server, known := find(servers, l.self.ID)
	t, err := parseTarget(string(server.Address))
	return known && err == nil && t.incarnation == l.self.Incarnation
}

const (
	// membershipEvery is how often a member that hears from no leader checks whether it is one.
	membershipEvery = time.Second
	// removalChecks is how many checks in a row may find a removal only in this member's log before
	// it stops: until then a peer can answer that the removal was not committed. One check is enough
	// if the state also has the removal.
	removalChecks = 10
)

// watchMembership stops a member without a leader once it finds that it was removed. The
// leader stops sending to a member as soon as the removal is in the leader's log, so the member
// learns neither that the removal was committed, nor of a removal while it was down.
func (l *Log) watchMembership() {
	tick := time.NewTicker(membershipEvery)
	defer tick.Stop()
	found := 0
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		retired, silent := l.retired(l.self.ID), 2*l.cfg.Profile.Election
		if retired {
			silent = l.cfg.Profile.Election
		}
		if l.ruling.Load() != 0 || time.Since(l.raft.LastContact()) < silent || !l.checkMembership() {
			found = 0
			continue
		}
		if found++; retired || found >= removalChecks {
			l.end(ErrRemoved)
		}
	}
}

// checkMembership asks the peers whether this member is still in the cluster, and stops it if not. A
// peer that refuses a connection because of the removal stops it too (mux.dial). An answer is used only
// if the peer's committed configuration is newer than the newest one with this member. It reports
// whether the newest configuration in the log lacks this member, which was in an earlier one, and no
// peer counts it as a member.
func (l *Log) checkMembership() (gone bool) {
	servers, at := l.raft.GetConfiguration().Configuration().Servers, l.memberAt.Load()
	gone = at != 0 && len(servers) > 0 && !l.isSelf(servers)
	replies, asked := l.askAll(servers, question{}, l.rpcTimeout())
	for range asked {
		h := <-replies
		switch {
		case h.err != nil:
		case h.Member:
			gone = false
		case at != 0 && h.ConfigIndex > at:
			l.end(ErrRemoved)
		}
	}
	return gone
}

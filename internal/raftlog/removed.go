package raftlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// removedFile, in Config.Dir, remembers that the member was removed from the cluster.
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

// markRemoved makes the directory remember the removal.
func (l *Log) markRemoved() {
	err := writeJSON(filepath.Join(l.cfg.Dir, removedFile), removal{ID: l.self.ID, At: l.cfg.Clock()})
	if err != nil {
		l.log.Error("cannot record that this member was removed", "err", err)
	}
}

// retired reports whether a member id was removed for good.
func (l *Log) retired(id string) bool { return l.cfg.Retired != nil && l.cfg.Retired(id) }

// barred reports whether connections of a member are refused. A retired id counts until the
// configuration without it is agreed: until then the cluster may need its vote.
func (l *Log) barred(id string) bool {
	if !l.retired(id) {
		return false
	}
	agreed := l.machine.configuration().servers
	_, member := find(agreed, id)
	return !member && len(agreed) > 0
}

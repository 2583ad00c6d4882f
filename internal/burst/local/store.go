//go:build linux

package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/burst"
)

// The files of an instance.
const (
	recordFile      = "instance.json"
	aliveFile       = "alive" // is locked while the instance runs
	startedFile     = "started"
	bootedFile      = "booted" // gnoded was started
	pidFile         = "pid"
	noticeFile      = "notice" // what reclaim_source of gnoded reads
	interruptedFile = "interrupted"
	consoleFile     = "console"
	identityFile    = "identity" // of the instance: what identify compares
	userDataFile    = "user-data.json"
	machineDir      = "machine" // is removed at the end
)

// keepEnded is how long the record of an ended instance is kept, so that its client token starts no other.
const keepEnded = 24 * time.Hour

// record is what is stored of an instance, before it starts.
type record struct {
	ID        string      `json:"id"`
	Cluster   string      `json:"cluster"`
	Launch    uint64      `json:"launch"`
	Try       uint32      `json:"try"`
	Token     string      `json:"client_token"`
	Arguments string      `json:"arguments"` // of the launch, for comparison
	Offer     burst.Offer `json:"offer"`
	Slot      int         `json:"slot"` // numbers the instances that run at a time, from 0
	Launched  time.Time   `json:"launched_at"`
	Expires   time.Time   `json:"expires"`
	ReclaimAt time.Time   `json:"reclaim_at,omitzero"`
	EndedAt   time.Time   `json:"ended_at,omitzero"`
}

// store is the state directory.
type store struct{ dir string }

func (s *store) path(id string, name ...string) string {
	return filepath.Join(append([]string{s.dir, "instances", id}, name...)...)
}

// lock waits for the lock of the directory.
func (s *store) lock() (unlock func(), err error) {
	if err := os.MkdirAll(s.path(""), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// replaceFile writes a file so that it has the old or the new content after a crash.
func replaceFile(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

func (s *store) write(x *record) error {
	text, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return replaceFile(s.path(x.ID, recordFile), append(text, '\n'), 0o644)
}

func (s *store) read(id string) (*record, error) {
	if id == "" || id != filepath.Base(id) {
		return nil, fmt.Errorf("%q is not the ID of an instance", id)
	}
	text, err := os.ReadFile(s.path(id, recordFile))
	if err != nil {
		return nil, err
	}
	x := &record{}
	return x, json.Unmarshal(text, x)
}

// all returns the instances by ID, and forgets those that ended long ago.
func (s *store) all() ([]*record, error) {
	entries, err := os.ReadDir(s.path(""))
	if err != nil {
		return nil, err
	}
	var list []*record
	for _, e := range entries {
		x, err := s.read(e.Name())
		switch {
		case errors.Is(err, os.ErrNotExist): // it was not created completely
			continue
		case err != nil:
			return nil, fmt.Errorf("instance %s: %w", e.Name(), err)
		case !x.EndedAt.IsZero() && time.Since(x.EndedAt) > keepEnded:
			if err := os.RemoveAll(s.path(x.ID)); err != nil {
				return nil, err
			}
			continue
		}
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b *record) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

func (s *store) exists(id, name string) bool {
	_, err := os.Stat(s.path(id, name))
	return err == nil
}

// running reports whether the instance runs: its first process has the lock of a file.
func (s *store) running(id string) bool {
	f, err := os.Open(s.path(id, aliveFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// state returns the state of an instance. That of one that has ended by itself is recorded.
func (s *store) state(x *record) (string, error) {
	switch {
	case !x.EndedAt.IsZero():
		return burst.StateTerminated, nil
	case !s.exists(x.ID, startedFile):
		return burst.StatePending, nil
	case !s.running(x.ID):
		return burst.StateTerminated, s.finish(x)
	case !s.exists(x.ID, bootedFile):
		return burst.StatePending, nil
	}
	return burst.StateRunning, nil
}

// finish removes what an ended instance used, and records its end.
func (s *store) finish(x *record) error {
	removeGroups(namespaceOf(x.ID))
	err := os.RemoveAll(s.path(x.ID, machineDir))
	for _, secret := range []string{userDataFile, identityFile} {
		if gone := os.Remove(s.path(x.ID, secret)); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		return err
	}
	x.EndedAt = time.Now().UTC()
	return s.write(x)
}

// instance converts a record.
func (s *store) instance(x *record) (burst.Instance, error) {
	state, err := s.state(x)
	out := burst.Instance{
		ID: x.ID, Cluster: x.Cluster, Launch: x.Launch, Try: x.Try, State: state, Type: x.Offer.Type, Address: "127.0.0.1",
		Price: x.Offer.Price, LaunchedAt: x.Launched, Interrupted: state == burst.StateTerminated && s.exists(x.ID, interruptedFile),
	}
	if state != burst.StateTerminated {
		out.ReclaimAt = x.ReclaimAt
	}
	return out, err
}

// namespaceOf is the namespace of an instance in containerd, which is part of the names of its control groups.
func namespaceOf(id string) string { return "burst-" + id }

// removeGroups removes the control groups that the gnoded of an instance made; they have no processes.
func removeGroups(namespace string) {
	for _, root := range []string{"/sys/fs/cgroup/greylag", "/sys/fs/cgroup/*/greylag"} {
		groups, _ := filepath.Glob(filepath.Join(root, "*"+namespace+"*"))
		for _, group := range groups {
			var dirs []string
			_ = filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) {
				_ = os.Remove(dir)
			}
		}
	}
}

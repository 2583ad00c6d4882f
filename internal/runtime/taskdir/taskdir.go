//go:build linux

// Package taskdir defines the directory that a node keeps for each of its tasks: the order for
// ginit, the script, the exit record, and the process of ginit. With it a task outlives every
// daemon: the next one finds what was started and how it ended.
//
// It decides paths and permissions, and whether a signal can reach the program yet (Reach). It
// never starts or removes a process.
package taskdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/greylag/greylag/internal/ginit"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/proc"
)

const (
	pidFile   = "pid"
	notesFile = "notes"
)

// Root is the directory with one directory per task. Only its owner may read it.
type Root string

// Dir is the directory of one task.
type Dir string

// Notes are data of the runtime about a task.
type Notes struct {
	Labels   map[string]string `json:"labels,omitempty"`
	Snapshot bool              `json:"snapshot,omitempty"` // it has a writable snapshot of an image
}

// Open creates the root if it does not exist.
func Open(path string) (Root, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("task directories: %w", err)
	}
	return Root(path), nil
}

// Dir returns the directory of a task, which need not exist.
func (r Root) Dir(id runtime.TaskID) Dir { return Dir(filepath.Join(string(r), id.String())) }

// Create creates the directory of a task. created is false if it existed.
func (r Root) Create(id runtime.TaskID) (dir Dir, created bool, err error) {
	dir = r.Dir(id)
	// 0711: the user must reach the script, but must not list the directory.
	err = os.Mkdir(string(dir), 0o711)
	switch {
	case errors.Is(err, fs.ErrExist):
		return dir, false, nil
	case err != nil:
		return dir, false, fmt.Errorf("task directory: %w", err)
	}
	if err := os.Chmod(string(dir), 0o711); err != nil { // independent of the umask
		return dir, false, fmt.Errorf("task directory: %w", err)
	}
	return dir, true, nil
}

// List returns the tasks that have a directory, in order.
func (r Root) List() ([]runtime.TaskID, error) {
	entries, err := os.ReadDir(string(r))
	if err != nil {
		return nil, fmt.Errorf("task directories: %w", err)
	}
	var ids []runtime.TaskID
	for _, entry := range entries {
		if id, err := runtime.ParseTaskID(entry.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, runtime.TaskID.Compare)
	return ids, nil
}

// Exists reports whether the task has a directory.
func (d Dir) Exists() bool {
	_, err := os.Lstat(string(d))
	return err == nil
}

// WriteScript stores the script, readable and executable only by its owner.
func (d Dir) WriteScript(script []byte, uid, gid uint32) error {
	path := filepath.Join(string(d), ginit.ScriptFile)
	if err := os.WriteFile(path, script, 0o500); err != nil {
		return fmt.Errorf("task script: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil // it belongs to the user already
	}
	if err := os.Lchown(path, int(uid), int(gid)); err != nil {
		return fmt.Errorf("task script: %w", err)
	}
	return nil
}

// WriteOrder stores the order for ginit.
func (d Dir) WriteOrder(order ginit.Order) error {
	data, err := ginit.EncodeOrder(order)
	if err != nil {
		return fmt.Errorf("task order: %w", err)
	}
	return d.write(ginit.OrderFile, data)
}

// WriteNotes stores notes for a later daemon.
func (d Dir) WriteNotes(notes Notes) error {
	data, err := json.Marshal(notes)
	if err != nil {
		return fmt.Errorf("task notes: %w", err)
	}
	return d.write(notesFile, data)
}

// Notes reads the notes; missing ones are empty.
func (d Dir) Notes() (Notes, error) {
	data, err := os.ReadFile(filepath.Join(string(d), notesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Notes{}, nil
	}
	var notes Notes
	if err == nil {
		err = json.Unmarshal(data, &notes)
	}
	if err != nil {
		return Notes{}, fmt.Errorf("task notes: %w", err)
	}
	return notes, nil
}

// WriteProcess stores the process of ginit.
func (d Dir) WriteProcess(h proc.Handle) error { return d.write(pidFile, []byte(h.String())) }

// Process reads the process of ginit. known is false if it was not stored.
func (d Dir) Process() (h proc.Handle, known bool, err error) {
	data, err := os.ReadFile(filepath.Join(string(d), pidFile))
	if errors.Is(err, fs.ErrNotExist) {
		return proc.Handle{}, false, nil
	}
	if err == nil {
		h, err = proc.Parse(string(data))
	}
	if err != nil {
		return proc.Handle{}, false, fmt.Errorf("task process: %w", err)
	}
	return h, true, nil
}

// Started reports whether ginit has begun to execute the order. From then on the task must never be
// started again.
func (d Dir) Started() bool {
	info, err := os.Lstat(d.claim())
	return err == nil && info.Mode().IsRegular()
}

// Fence ensures that ginit never executes the order, if it has not begun: a container that is being
// created while its task is removed may still be completed. It does nothing if there is no task.
func (d Dir) Fence() error {
	// A link is created atomically, and ginit's own claim then fails.
	err := os.Symlink(fenced, d.claim())
	if errors.Is(err, syscall.ENOSPC) {
		_ = os.Remove(filepath.Join(string(d), ginit.OrderFile)) // frees space, and ginit needs the file
		err = os.Symlink(fenced, d.claim())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("fence task: %w", err)
	}
	return nil
}

// Fenced reports whether Fence came before ginit.
func (d Dir) Fenced() bool {
	target, err := os.Readlink(d.claim())
	return err == nil && target == fenced
}

// fenced is the link target of a fenced task's claim; no such file exists.
const fenced = "removed"

// claim returns the file that marks an order as taken.
func (d Dir) claim() string { return filepath.Join(string(d), ginit.StartedFile) }

// Record reads the exit record of the task. known is false if it does not exist.
func (d Dir) Record() (record ginit.Record, known bool, err error) { return d.record(ginit.RecordFile) }

func (d Dir) record(name string) (record ginit.Record, known bool, err error) {
	data, err := os.ReadFile(filepath.Join(string(d), name))
	if errors.Is(err, fs.ErrNotExist) {
		return ginit.Record{}, false, nil
	}
	if err == nil {
		record, err = ginit.DecodeRecord(data)
	}
	if err != nil {
		return ginit.Record{}, false, fmt.Errorf("task record: %w", err)
	}
	return record, true, nil
}

// Remove removes the directory of the task. It may be repeated after an interruption.
func (d Dir) Remove() error {
	if err := os.RemoveAll(string(d)); err != nil {
		return fmt.Errorf("task directory: %w", err)
	}
	return nil
}

// write writes the whole file or nothing.
func (d Dir) write(name string, data []byte) error {
	path := filepath.Join(string(d), name)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("task %s: %w", name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("task %s: %w", name, err)
	}
	return nil
}

//go:build linux

// Package taskdir lays out the folder that a node keeps for each of its tasks:
// the order for ginit, the script, the record of the end, and which process
// ginit is. The folder is what makes a task outlive every daemon: whoever finds
// it knows what was started and how it ended.
//
// It decides where things lie and who may read them, and whether a signal can reach
// the program yet (Reach). It never starts or removes a process.
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

// Root is the folder that holds one folder per task. Only its owner may look
// into it.
type Root string

// Dir is the folder of one task.
type Dir string

// Notes are what the runtime wants to find again about a task.
type Notes struct {
	Labels   map[string]string `json:"labels,omitempty"`
	Snapshot bool              `json:"snapshot,omitempty"` // has a writable copy of an image
}

// Open makes the root where it is missing.
func Open(path string) (Root, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("task folders: %w", err)
	}
	return Root(path), nil
}

// Dir names the folder of a task, which need not exist.
func (r Root) Dir(id runtime.TaskID) Dir { return Dir(filepath.Join(string(r), id.String())) }

// Create makes the folder of a task. created is false where it was there.
func (r Root) Create(id runtime.TaskID) (dir Dir, created bool, err error) {
	dir = r.Dir(id)
	// 0711: the user has to pass through to the script, and to list nothing.
	err = os.Mkdir(string(dir), 0o711)
	switch {
	case errors.Is(err, fs.ErrExist):
		return dir, false, nil
	case err != nil:
		return dir, false, fmt.Errorf("task folder: %w", err)
	}
	if err := os.Chmod(string(dir), 0o711); err != nil { // whatever our umask
		return dir, false, fmt.Errorf("task folder: %w", err)
	}
	return dir, true, nil
}

// List names the tasks that have a folder, in order.
func (r Root) List() ([]runtime.TaskID, error) {
	entries, err := os.ReadDir(string(r))
	if err != nil {
		return nil, fmt.Errorf("task folders: %w", err)
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

// Exists tells whether anything is kept of the task.
func (d Dir) Exists() bool {
	_, err := os.Lstat(string(d))
	return err == nil
}

// WriteScript leaves the script readable and executable by its owner alone.
func (d Dir) WriteScript(script []byte, uid, gid uint32) error {
	path := filepath.Join(string(d), ginit.ScriptFile)
	if err := os.WriteFile(path, script, 0o500); err != nil {
		return fmt.Errorf("task script: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil // it is the user's own already
	}
	if err := os.Lchown(path, int(uid), int(gid)); err != nil {
		return fmt.Errorf("task script: %w", err)
	}
	return nil
}

// WriteOrder leaves what ginit is to do.
func (d Dir) WriteOrder(order ginit.Order) error {
	data, err := ginit.EncodeOrder(order)
	if err != nil {
		return fmt.Errorf("task order: %w", err)
	}
	return d.write(ginit.OrderFile, data)
}

// WriteNotes leaves notes for a later daemon.
func (d Dir) WriteNotes(notes Notes) error {
	data, err := json.Marshal(notes)
	if err != nil {
		return fmt.Errorf("task notes: %w", err)
	}
	return d.write(notesFile, data)
}

// Notes reads them back; none are empty Notes.
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

// WriteProcess notes which process ginit is.
func (d Dir) WriteProcess(h proc.Handle) error { return d.write(pidFile, []byte(h.String())) }

// Process reads it back. known is false where it was never noted.
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

// Started tells whether ginit has begun to carry out the order. From then on
// the task must never be started again.
func (d Dir) Started() bool {
	info, err := os.Lstat(d.claim())
	return err == nil && info.Mode().IsRegular()
}

// Fence makes sure that ginit never begins to carry out the order, if it has not begun:
// a container that is still being made while its task is removed may yet be finished.
// Nothing is done where there is no task.
func (d Dir) Fence() error {
	// A link is made whole or not at all, and ginit's own claim then fails.
	err := os.Symlink(fenced, d.claim())
	if errors.Is(err, syscall.ENOSPC) {
		_ = os.Remove(filepath.Join(string(d), ginit.OrderFile)) // makes room, and ginit needs it
		err = os.Symlink(fenced, d.claim())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("fence task: %w", err)
	}
	return nil
}

// Fenced tells whether Fence came before ginit.
func (d Dir) Fenced() bool {
	target, err := os.Readlink(d.claim())
	return err == nil && target == fenced
}

// fenced is what the claim of a fenced task leads to; there is no such file.
const fenced = "removed"

// claim is the file that whoever carries out the order has made.
func (d Dir) claim() string { return filepath.Join(string(d), ginit.StartedFile) }

// Record reads how the task ended. known is false where there is no record.
func (d Dir) Record() (record ginit.Record, known bool, err error) {
	data, err := os.ReadFile(filepath.Join(string(d), ginit.RecordFile))
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

// Remove forgets the task, and may be repeated after an interruption.
func (d Dir) Remove() error {
	if err := os.RemoveAll(string(d)); err != nil {
		return fmt.Errorf("task folder: %w", err)
	}
	return nil
}

// write leaves the whole file or none.
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

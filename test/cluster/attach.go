package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// ErrNone reports that no cluster is in the folder.
var ErrNone = errors.New("no cluster there")

// Left is a cluster that another process started.
type Left struct{ dir string }

// Attach finds the cluster that was started in dir with Options.Keep.
func Attach(dir string) (*Left, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "client.toml")); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, ErrNone)
	}
	return &Left{dir}, nil
}

// ConfigFile returns the configuration file for its commands.
func (l *Left) ConfigFile() string { return filepath.Join(l.dir, "client.toml") }

// Programs returns the folder of the programs, $GREYLAG_BIN; empty where that is not set and PATH
// is used.
func (l *Left) Programs() string { return os.Getenv("GREYLAG_BIN") }

// Answers reports whether its controllers answer a command.
func (l *Left) Answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ask := exec.CommandContext(ctx, filepath.Join(l.Programs(), "gctl"), "cluster", "status")
	ask.Env = append(os.Environ(), "GREYLAG_CONFIG="+l.ConfigFile())
	return ask.Run() == nil
}

// Stop ends it and leaves nothing.
func (l *Left) Stop() error { return clean(l.dir) }

// reapVariable makes a copy of this program a reaper.
const reapVariable = "GREYLAG_REAP"

// reaper is a process that cleans up when this one dies without doing so.
type reaper struct {
	process *exec.Cmd
	lifts   io.WriteCloser // open as long as this process lives
}

// ReapIfAsked must be the first call of a program that uses Start, in main or TestMain: Start runs
// the program once more to watch over it, and that copy cleans up and exits here; and programs of
// clusters get the umask of daemons. With Options.Keep, copies restart controllers that ask for it.
func ReapIfAsked() {
	syscall.Umask(0o022)
	keepIfAsked()
	dir := os.Getenv(reapVariable)
	if dir == "" {
		return
	}
	_, err := io.Copy(io.Discard, os.Stdin) // ends when the starter does
	if _, gone := os.Stat(dir); gone == nil {
		err = errors.Join(err, clean(dir))
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func startReaper(dir string) (*reaper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process := exec.Command(self)
	process.Env = append(os.Environ(), reapVariable+"="+dir)
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a ^C is not for it
	lifts, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	return &reaper{process, lifts}, nil
}

// dismiss ends the reaper, which has nothing left to do.
func (r *reaper) dismiss() error {
	ended := make(chan error, 1)
	failed := r.lifts.Close()
	go func() { ended <- r.process.Wait() }()
	select {
	case err := <-ended:
		return errors.Join(failed, err)
	case <-time.After(2 * time.Minute):
		return errors.Join(failed, r.process.Process.Kill(), <-ended, errors.New("the reaper does not end"))
	}
}

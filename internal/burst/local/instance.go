//go:build linux

package local

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/burst"
)

// aliveFD is the descriptor of the locked file in the first process.
const aliveFD = 3

// start starts an instance that was never started.
func start(s *store, set *Settings, x *record, data *burst.UserData) error {
	if !x.EndedAt.IsZero() || s.exists(x.ID, startedFile) {
		return nil
	}
	text, err := json.Marshal(data)
	if err == nil {
		err = errors.Join(replaceFile(s.path(x.ID, userDataFile), text, 0o600), replaceFile(s.path(x.ID, identityFile), []byte(rand.Text()), 0o600))
	}
	if err != nil {
		return err
	}
	alive, err := os.OpenFile(s.path(x.ID, aliveFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer alive.Close()
	if err := unix.Flock(int(alive.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	console, err := os.OpenFile(s.path(x.ID, consoleFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	if err := replaceFile(s.path(x.ID, startedFile), nil, 0o644); err != nil {
		return err
	}
	if os.Geteuid() == 0 && set.Runtime != "process" {
		if err = startProcess(s, x, alive, console, unix.CLONE_NEWPID|unix.CLONE_NEWNS); err == nil {
			return nil
		}
		fmt.Fprintln(console, "cannot create namespaces:", err)
	}
	return startProcess(s, x, alive, console, 0)
}

func startProcess(s *store, x *record, alive, console *os.File, namespaces uintptr) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "--dir", s.dir, commandInstance, x.ID)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", console, console
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + s.path(x.ID, machineDir)}
	cmd.ExtraFiles = []*os.File{alive}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces}
	return cmd.Start()
}

// runInstance is the first process of an instance. Its end ends all that the instance ran.
func runInstance(s *store, args []string) error {
	if len(args) != 1 {
		return errors.New("missing instance ID")
	}
	x, err := s.read(args[0])
	if err != nil {
		return err
	}
	syscall.CloseOnExec(aliveFD)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
	if err := isolate(s, x); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	pid, err := syscall.ForkExec(self, []string{self, "--dir", s.dir, commandBoot, x.ID}, &syscall.ProcAttr{Dir: "/", Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go reap(pid, ended)
	err = supervise(s, x, ended, signals)
	if os.Getpid() != 1 {
		killDescendants()
	}
	return err
}

// isolate makes the process the ancestor of all that the instance starts, and records its ID.
func isolate(s *store, x *record) error {
	id := strconv.Itoa(os.Getpid())
	if os.Getpid() == 1 {
		var err error
		if id, err = os.Readlink("/proc/self"); err != nil { // the ID outside, until the next mount
			return err
		}
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return fmt.Errorf("mount proc: %w", err)
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	return replaceFile(s.path(x.ID, pidFile), []byte(id+"\n"), 0o644)
}

// reap reaps all children, and closes ended at the end of one.
func reap(pid int, ended chan<- struct{}) {
	for {
		got, err := syscall.Wait4(-1, nil, 0, nil)
		switch {
		case got == pid:
			close(ended)
		case errors.Is(err, syscall.ECHILD):
			return
		}
	}
}

// supervise returns when the instance is to end: its gnoded has ended, it is terminated, or its time is over.
func supervise(s *store, x *record, ended <-chan struct{}, signals <-chan os.Signal) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-signals:
			return nil
		case now := <-tick.C:
			if now.After(x.Expires) {
				return nil
			}
			text, err := os.ReadFile(s.path(x.ID, noticeFile))
			if err != nil {
				continue
			}
			if at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(text))); err == nil && now.After(at) {
				return replaceFile(s.path(x.ID, interruptedFile), nil, 0o644)
			}
		}
	}
}

// killDescendants kills all descendants of this process, which orphans among them remain (PR_SET_CHILD_SUBREAPER).
func killDescendants() {
	for {
		found := false
		for _, pid := range descendants(os.Getpid()) {
			found = unix.Kill(pid, unix.SIGKILL) == nil || found
		}
		if !found {
			return
		}
		time.Sleep(endPoll)
	}
}

// descendants returns the processes below one, except zombies.
func descendants(root int) (list []int) {
	children := map[int][]int{}
	zombies := map[int]bool{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		_, rest, found := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if err != nil || !found || len(fields) < 2 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
		zombies[pid] = fields[0] == "Z"
	}
	for next := children[root]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		if !zombies[pid] {
			list = append(list, pid)
		}
	}
	return list
}

package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Process is one program of the cluster: it can be started, killed, paused and restarted, and its
// output goes to one file.
type Process struct {
	name  string
	log   string
	enter []string // put before argv: how to get into its namespace
	argv  []string
	env   []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{}
	exit   error
	paused bool
}

// newProcess prepares a program without starting it. Its output is appended to
// dir/name.log.
func newProcess(dir, name string, argv ...string) *Process {
	return &Process{name: name, log: filepath.Join(dir, name+".log"), argv: argv}
}

// UsePrograms makes later starts run the program of the same name in dir, such as that of another
// version. It must not be used with Options.Keep, where the program is a keeper.
func (p *Process) UsePrograms(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.argv = append([]string{filepath.Join(dir, filepath.Base(p.argv[0]))}, p.argv[1:]...)
}

// Start starts the program. It is an error when it runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("%s runs already", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	argv := append(append([]string{}, p.enter...), p.argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done, p.paused = cmd, done, false
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.exit = err
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// running must be called with the lock held.
func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Running reports whether the program runs.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// Signal sends a signal; none to a program that has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the program with SIGKILL and waits until it is gone.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, time.Minute) }

// Stop asks the program to end, and kills it after a minute.
func (p *Process) Stop() error {
	if err := p.end(syscall.SIGTERM, time.Minute); err == nil {
		return nil
	}
	return p.Kill()
}

func (p *Process) end(sig syscall.Signal, patience time.Duration) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	return p.WaitEnd(patience)
}

// Pause stops the program (SIGSTOP) until Resume.
func (p *Process) Pause() error {
	p.setPaused(true)
	return p.Signal(syscall.SIGSTOP)
}

// Resume continues a paused program.
func (p *Process) Resume() error {
	p.setPaused(false)
	return p.Signal(syscall.SIGCONT)
}

func (p *Process) setPaused(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
}

// Paused reports whether the program was paused and not resumed.
func (p *Process) Paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused && p.running()
}

// WaitEnd waits until the program has ended.
func (p *Process) WaitEnd(patience time.Duration) error {
	p.mu.Lock()
	done, cmd := p.done, p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s does not end within %s", p.name, patience)
	}
}

// ExitCode returns the exit status of the last run; -1 when it was killed or runs.
func (p *Process) ExitCode() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.running() {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// PID returns the process ID, 0 when it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// LogTail returns the last n bytes of its output.
func (p *Process) LogTail(n int64) string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > n {
		if _, err := f.Seek(-n, 2); err != nil {
			return err.Error()
		}
	}
	buf := make([]byte, n)
	k, _ := f.Read(buf) // an incomplete tail suffices for the message
	return string(buf[:k])
}

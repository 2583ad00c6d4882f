package daemon

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/stream"
)

// files opens what the tasks of a node are connected to.
type files struct {
	*daemon
	opened map[string]int // output files by path: tasks that share one must not truncate it twice
}

func (f *files) close() {
	for _, fd := range f.opened {
		_ = syscall.Close(fd) // tasks have their own
	}
}

// connect opens the standard streams of a task. It reports whether they are a terminal that the
// task controls.
func (d *daemon) connect(t *task, f *files) (terminal bool, err error) {
	p := &d.program
	if p.PTY && t.rank == 0 {
		return true, d.connectTerminal(t)
	}
	in, out, errs := p.Stdin, p.Stdout, p.Stderr
	if p.PTY {
		in, out, errs = step.Stream{Mode: step.StreamNone}, step.Stream{Mode: step.StreamNone}, step.Stream{Mode: step.StreamNone}
	}
	if err := f.openInput(t, in); err != nil {
		return false, err
	}
	if err := f.openOutput(t, out, stream.Stdout); err != nil {
		return false, err
	}
	return false, f.openOutput(t, errs, stream.Stderr)
}

// keep adds a descriptor of the task.
func (t *task) keep(fd int, err error) error {
	if err == nil {
		t.child = append(t.child, fd)
	}
	return err
}

func (f *files) openInput(t *task, s step.Stream) error {
	switch {
	case s.Mode == step.StreamFile:
		path, err := f.path(t, s.Path)
		if err != nil {
			return err
		}
		fd, err := open(path, syscall.O_RDONLY)
		if err != nil {
			return &startError{"cannot open the input file " + path, err}
		}
		return t.keep(fd, nil)
	case !connected(s, t.rank):
		return t.keep(openNull())
	}
	ends, err := pipe()
	if err != nil {
		return &startError{"cannot open a pipe", err}
	}
	own, err := parentEnd(ends[1])
	if err != nil {
		return err
	}
	f.input.join(own)
	return t.keep(ends[0], nil)
}

// connected reports whether grun is at the other end of a task's stream.
func connected(s step.Stream, rank int) bool {
	return s.Mode == step.StreamAll || s.Mode == step.StreamRank && s.Rank == rank
}

func (f *files) openOutput(t *task, s step.Stream, kind stream.Kind) error {
	switch {
	case s.Mode == step.StreamFile:
		return f.openFile(t, s.Path)
	case !connected(s, t.rank):
		return t.keep(openNull())
	case f.program.Unbuffered:
		own, child, err := openTerminal(0, 0)
		if err != nil {
			return &startError{"cannot open a terminal", err}
		}
		if err := withoutProcessing(child); err != nil {
			return err
		}
		f.forward(t.rank, kind, own, true)
		return t.keep(child, nil)
	}
	ends, err := pipe()
	if err != nil {
		return &startError{"cannot open a pipe", err}
	}
	own, err := parentEnd(ends[0])
	if err != nil {
		return err
	}
	f.forward(t.rank, kind, own, f.program.AtOnce)
	return t.keep(ends[1], nil)
}

// openFile opens an output file, always with O_APPEND: tasks may share it.
func (f *files) openFile(t *task, pattern string) error {
	path, err := f.path(t, pattern)
	if err != nil {
		return err
	}
	fd, ok := f.opened[path]
	if !ok {
		flags := syscall.O_WRONLY | syscall.O_CREAT | syscall.O_APPEND
		if !f.program.Append {
			flags |= syscall.O_TRUNC
		}
		if fd, err = open(path, flags); err != nil {
			return &startError{"cannot open the output file " + path, err}
		}
		f.opened[path] = fd
	}
	return t.keep(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0))
}

// path returns a task's file. A relative name is relative to the tasks' working directory.
func (f *files) path(t *task, pattern string) (string, error) {
	values := map[byte]string{'t': strconv.Itoa(t.rank), 'n': strconv.Itoa(f.Order.Node), 'N': f.node.Name}
	for letter, value := range f.program.Letters {
		values[letter] = value
	}
	path, err := step.ExpandPath(pattern, values)
	if err == nil && path != "" && path[0] != '/' {
		path = f.program.Dir + "/" + path
	}
	return path, err
}

// open opens without waiting for the other end of a FIFO and without a controlling terminal.
func open(path string, flags int) (int, error) {
	fd, err := syscall.Open(path, flags|syscall.O_NOCTTY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0o666)
	if err == nil {
		err = syscall.SetNonblock(fd, false)
	}
	return fd, err
}

func openNull() (int, error) { return syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0) }

func pipe() (ends [2]int, err error) {
	err = syscall.Pipe2(ends[:], syscall.O_CLOEXEC)
	return ends, err
}

// parentEnd returns a descriptor as a file that can be closed while it is read or written.
func parentEnd(fd int) (*os.File, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "task"), nil
}

// openTerminal opens a pseudo terminal. It does not become the controlling one of this process.
func openTerminal(rows, cols uint16) (own *os.File, child int, err error) {
	fd, err := open("/dev/ptmx", syscall.O_RDWR)
	if err != nil {
		return nil, 0, err
	}
	if own, err = parentEnd(fd); err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			own.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, 0, err
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, 0, err
	}
	if rows > 0 || cols > 0 {
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
			return nil, 0, err
		}
	}
	child, err = open("/dev/pts/"+strconv.Itoa(number), syscall.O_RDWR)
	return own, child, err
}

// withoutProcessing makes a terminal pass on output bytes as they are.
func withoutProcessing(fd int) error {
	settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	settings.Oflag &^= unix.OPOST
	return unix.IoctlSetTermios(fd, unix.TCSETS, settings)
}

// connectTerminal gives rank 0 a terminal for its three streams.
func (d *daemon) connectTerminal(t *task) error {
	own, child, err := openTerminal(d.program.Rows, d.program.Cols)
	if err != nil {
		return &startError{"cannot open a terminal", err}
	}
	d.mu.Lock()
	d.pty = own
	d.mu.Unlock()
	d.input.joinTerminal(own)
	d.replay.rank = t.rank
	d.outputs.Go(func() { d.forwardTerminal(own) })
	t.child = append(t.child, child)
	for range 2 {
		if err := t.keep(unix.FcntlInt(uintptr(child), unix.F_DUPFD_CLOEXEC, 0)); err != nil {
			return err
		}
	}
	return nil
}

// resize sets the size of rank 0's terminal.
func (d *daemon) resize(rows, cols uint16) {
	d.controlTerminal(func(fd int) {
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// controlTerminal calls f with the descriptor of rank 0's terminal, if it exists.
func (d *daemon) controlTerminal(f func(fd int)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pty == nil {
		return
	}
	raw, err := d.pty.SyscallConn() // Fd would make it block
	if err == nil {
		err = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
	_ = err // the task has ended
}

// forward sends a task's output until all its writers closed it. Without atOnce only whole lines
// are sent, unless a line is longer than a frame.
func (d *daemon) forward(rank int, kind stream.Kind, from *os.File, atOnce bool) {
	d.outputs.Add(1)
	go func() {
		defer d.outputs.Done()
		defer from.Close()
		frame := make([]byte, stream.HeaderSize+stream.MaxData)
		held := 0 // bytes of an unfinished line
		var lost error
		peer := d.peer.Load() // only a terminal can have another one later
		for {
			n, err := from.Read(frame[stream.HeaderSize+held:])
			end := held + n
			whole := end
			if last := lastLine(frame[stream.HeaderSize:][:end]); !atOnce && err == nil && (last > 0 || end < stream.MaxData) {
				whole = last
			}
			if whole > 0 && lost == nil { // without a connection the task must still not block
				lost = peer.SendInPlace(kind, uint32(rank), frame[:stream.HeaderSize+whole])
			}
			held = copy(frame[stream.HeaderSize:], frame[stream.HeaderSize+whole:stream.HeaderSize+end])
			if err != nil { // io.EOF, or EIO of a terminal without users
				return
			}
		}
	}()
}

// lastLine returns the length of data up to its last newline.
func lastLine(data []byte) int {
	for i := len(data); i > 0; i-- {
		if data[i-1] == '\n' {
			return i
		}
	}
	return 0
}

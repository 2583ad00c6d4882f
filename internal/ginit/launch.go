//go:build linux

package ginit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/greylag/greylag/internal/userfile"
)

// exitTerminated is the exit status if SIGTERM came before the program started: the same as if the
// program had received it.
const exitTerminated = 128 + int(syscall.SIGTERM)

// failure is the reason why the program was not executed; without a message if it was stopped
// before it began.
type failure struct {
	code    int
	message string
}

// launch opens the output and enters the working directory as the user, then executes the program
// as the user in a process group of its own. It creates no session: a program that opens a terminal
// must not get it as its controlling one. It returns the program's process ID; 0 if the
// order has none. After SIGTERM it executes nothing.
func launch(order *Order, signals chan os.Signal) (int, *failure) {
	syscall.Umask(int(order.Umask))
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, &failure{ExitOutput, "cannot open /dev/null: " + reason(err)}
	}
	files := []uintptr{uintptr(null), uintptr(null), uintptr(null)}
	failed := asUser(order, func() *failure { return enter(order, files) })
	if failed != nil {
		return 0, failed
	}
	attr := attributes(order, files)
	if order.Confine {
		if err := confine(); err != nil { // fail closed
			return 0, &failure{ExitExec, "cannot confine the task: " + reason(err)}
		}
	}
	if terminated(signals) {
		return 0, &failure{code: exitTerminated}
	}
	pid := 0
	if !order.Hold {
		if pid, err = execute(order, attr); err != nil {
			return 0, &failure{ExitExec, execMessage(order, err)}
		}
	}
	for i, fd := range files {
		// The program has the files; open copies would keep the blocks of deleted files.
		if i == 0 || fd != files[i-1] {
			_ = syscall.Close(int(fd))
		}
	}
	return pid, nil
}

// attributes returns how a program of the task is started: as the user, in a process group of its own.
func attributes(order *Order, files []uintptr) *syscall.ProcAttr {
	attr := &syscall.ProcAttr{Env: order.Env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if order.Become {
		attr.Sys.Credential = &syscall.Credential{Uid: order.UID, Gid: order.GID, Groups: order.Groups}
	}
	if order.Subreap {
		attr.Sys.Pdeathsig = syscall.SIGKILL // no PID namespace ends with this process
	}
	return attr
}

// enter opens the input into files[0] and the output files into files[1:], and enters the working
// directory.
func enter(order *Order, files []uintptr) *failure {
	if order.WorkDir != "" {
		if err := enterFolder(order.WorkDir); err != nil {
			return &failure{ExitWorkDir, "cannot enter the working directory " + order.WorkDir + ": " + reason(err)}
		}
	}
	if order.Stdin != "" {
		fd, err := open(order.Stdin, syscall.O_RDONLY)
		if err != nil {
			return &failure{ExitInput, "cannot open the input file " + order.Stdin + ": " + reason(err)}
		}
		files[0] = uintptr(fd)
	}
	for i, path := range []string{order.Stdout, order.Stderr} {
		if path == "" || path == order.Stdout && i == 1 {
			files[i+1] = files[1] // null for stdout; the file of stdout for stderr
			continue
		}
		fd, err := openOutput(path, order.Append)
		if err != nil {
			return &failure{ExitOutput, "cannot open the output file " + path + ": " + reason(err)}
		}
		files[i+1] = uintptr(fd)
	}
	return nil
}

// openOutput opens a file for writing, always with O_APPEND: tasks of one job may share a file.
func openOutput(path string, keep bool) (int, error) {
	flags := syscall.O_WRONLY | syscall.O_CREAT | syscall.O_APPEND
	if !keep {
		flags |= syscall.O_TRUNC
	}
	return open(path, flags)
}

// open opens without waiting for the other end of a FIFO and without a controlling terminal.
func open(path string, flags int) (int, error) {
	flags |= syscall.O_NOCTTY | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	fd, err := userfile.Open(path, flags, 0o666)
	if err == nil {
		err = syscall.SetNonblock(fd, false)
	}
	return fd, err
}

// enterFolder changes to the working directory without following links of /proc.
func enterFolder(path string) error {
	folder, err := userfile.OpenFolder(path)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Fchdir(folder.FD), folder.Close())
}

// execute starts the program and looks up a bare name in the order's PATH, as execvp does: the
// error of an existing candidate takes precedence over ENOENT.
func execute(order *Order, attr *syscall.ProcAttr) (int, error) {
	name := order.Args[0]
	if strings.Contains(name, "/") {
		return syscall.ForkExec(name, order.Args, attr)
	}
	last := error(syscall.ENOENT)
	for _, dir := range filepath.SplitList(searchPath(order.Env)) {
		pid, err := syscall.ForkExec(filepath.Join(dir, name), order.Args, attr)
		if err == nil {
			return pid, nil
		}
		if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENOTDIR) {
			last = err
		}
	}
	return 0, last
}

// searchPath returns PATH of env; the last entry counts. Without one it returns the kernel's usual
// directories.
func searchPath(env []string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if path, ok := strings.CutPrefix(env[i], "PATH="); ok {
			return path
		}
	}
	return "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
}

// execMessage explains to the user why the program could not be executed.
func execMessage(order *Order, err error) string {
	name := order.Args[0]
	if order.ScriptIs != "" {
		name = order.ScriptIs
	}
	switch {
	case order.ScriptIs != "" && errors.Is(err, syscall.ENOENT):
		return "cannot run " + name + ": the program named by its #! line does not exist here"
	case order.ScriptIs != "" && errors.Is(err, syscall.EACCES):
		return "cannot run " + name + ": the program named by its #! line may not be executed"
	case errors.Is(err, syscall.ENOENT):
		return "cannot run " + name + ": no such program"
	case errors.Is(err, syscall.ENOEXEC):
		return "cannot run " + name + ": not a program for this machine, and no #! line"
	}
	return "cannot run " + name + ": " + reason(err)
}

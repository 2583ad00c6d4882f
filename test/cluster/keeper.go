package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// keepVariable makes a copy of this program a keeper.
const keepVariable = "GREYLAG_KEEP"

// startAgain are the exit statuses with which a controller asks to be restarted (gctld --help); a
// service manager does that, and here a keeper.
func startAgain() []int { return []int{75, 76} }

// keeperPause is the time between an end and the next start.
const keeperPause = time.Second

// kept returns the command line of a program with a keeper, a copy of this program that outlives
// it.
func kept(argv ...string) ([]string, error) {
	self, err := os.Executable()
	return append([]string{self}, argv...), err
}

// keepIfAsked runs the program in its arguments, again as long as it asks for that, and ends with
// its status.
func keepIfAsked() {
	if os.Getenv(keepVariable) == "" {
		return
	}
	runtime.LockOSThread() // with which the program is to die
	if err := os.Unsetenv(keepVariable); err != nil {
		os.Exit(1)
	}
	for {
		status, err := once(os.Args[1:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "keeper:", err)
		}
		if !slices.Contains(startAgain(), status) {
			os.Exit(status)
		}
		time.Sleep(keeperPause)
	}
}

// once runs a program to its end.
func once(argv []string) (status int, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &ended) && ended.Exited():
		return ended.ExitCode(), nil
	}
	return 1, err
}

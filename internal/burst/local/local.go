//go:build linux

// Package local is a provider program whose instances are gnoded processes of this machine, for the demo and for tests.
//
// It decides what its settings file says about offers and faults, and keeps one folder for each instance. An instance
// outlives the call that started it. As root it has PID and mount namespaces of its own, so that its end ends all that it
// ran. The package never decides what is rented or ended.
package local

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/greylag/greylag/internal/burst"
)

// DefaultDir is the state directory without --dir.
const DefaultDir = "/var/lib/greylag-burst-local"

const usage = `usage: greylag-burst-local [--dir DIR] validate|offers|launch|list|terminate|console|identify
       greylag-burst-local [--dir DIR] reclaim [--in 2m] INSTANCE
`

// The commands that are no calls of the contract.
const (
	commandReclaim  = "reclaim"
	commandInstance = "instance" // the first process of an instance
	commandBoot     = "boot"     // what the instance runs
)

// Main runs the program with its arguments and returns its exit status.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("greylag-burst-local", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("dir", DefaultDir, "")
	if err := flags.Parse(args); err != nil || flags.NArg() == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	path, err := filepath.Abs(*dir)
	if err != nil {
		fmt.Fprintln(stderr, "greylag-burst-local: error:", err)
		return burst.ExitTryLater
	}
	s := &store{dir: path}
	rest := flags.Args()
	switch rest[0] {
	case commandReclaim:
		err = reclaimCommand(s, rest[1:])
	case commandInstance:
		err = runInstance(s, rest[1:])
	case commandBoot:
		err = boot(s, rest[1:], stdout)
	default:
		return answer(s, rest, stdin, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "greylag-burst-local: error:", err)
		return 1
	}
	return 0
}

// failure is a failed call of the contract.
type failure struct {
	burst.Failure
	status int
}

func (f *failure) Error() string { return f.Message }

func fail(kind, format string, args ...any) error {
	f := &failure{burst.Failure{Kind: kind, Message: fmt.Sprintf(format, args...)}, burst.ExitPermanent}
	if kind == burst.FailureTryLater || kind == burst.FailureThrottled {
		f.status = burst.ExitTryLater
	}
	return f
}

// answer answers one call.
func answer(s *store, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a, err := call(s, args, stdin)
	status := burst.ExitOK
	if err != nil {
		fmt.Fprintln(stderr, err)
		f := &failure{burst.Failure{Kind: burst.FailureTryLater, Message: err.Error()}, burst.ExitTryLater}
		errors.As(err, &f)
		a, status = &burst.Answer{Error: &f.Failure}, f.status
	}
	if err := json.NewEncoder(stdout).Encode(a); err != nil {
		return burst.ExitTryLater
	}
	return status
}

// call reads the question and does what it asks under the lock of the state directory.
func call(s *store, args []string, stdin io.Reader) (*burst.Answer, error) {
	var q burst.Question
	r := json.NewDecoder(stdin)
	if err := r.Decode(&q); err != nil || len(args) != 1 {
		return nil, fail(burst.FailureInvalid, "expected one call, and one JSON object on standard input: %v", err)
	}
	if q.Version != burst.Version || q.Cluster == "" {
		return nil, fail(burst.FailureInvalid, "version %d of the contract or no cluster", q.Version)
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch args[0] {
	case burst.CallValidate:
		return validate(s), nil
	case burst.CallOffers:
		return offers(s)
	case burst.CallLaunch:
		return launch(s, &q)
	case burst.CallList:
		return list(s, &q)
	case burst.CallTerminate:
		return terminate(s, &q)
	case burst.CallConsole:
		return console(s, &q)
	case burst.CallIdentify:
		return identify(s, &q)
	}
	return nil, fail(burst.FailureInvalid, "unknown call %q", args[0])
}

// reclaimCommand gives an instance the notice that it is taken back.
func reclaimCommand(s *store, args []string) error {
	flags := flag.NewFlagSet(commandReclaim, flag.ContinueOnError)
	in := flags.Duration("in", 2*time.Minute, "time until the instance ends")
	if err := flags.Parse(args); err != nil || flags.NArg() != 1 || *in <= 0 {
		return errors.New("usage: reclaim [--in 2m] INSTANCE")
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	x, err := s.read(flags.Arg(0))
	if err != nil {
		return err
	}
	if !x.ReclaimAt.IsZero() || !x.EndedAt.IsZero() {
		return fmt.Errorf("instance %s has ended, or already has a notice", x.ID)
	}
	x.ReclaimAt = time.Now().Add(*in).UTC().Truncate(time.Second)
	if err := s.write(x); err != nil {
		return err
	}
	return replaceFile(s.path(x.ID, noticeFile), []byte(x.ReclaimAt.Format(time.RFC3339)+"\n"), 0o644)
}

// syncFolder makes the names in a folder durable.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

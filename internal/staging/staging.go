// Package staging copies the input files of a job from S3, web servers and rsync daemons to its node, and its output files
// back.
//
// It runs in a child process of the node's daemon, as the job's user. It stays below the job's directories: it never
// follows a symbolic link that leads out of them. It decides which failures another try may cure, and bounds what a server
// may send. What a failure means for the job is not decided here.
package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/checkpoint"
	"github.com/greylag/greylag/internal/userchild"
)

// Copy is a file or a directory to copy. That of a URL which ends with a slash is a directory.
type Copy struct {
	Dir  string `json:"dir"`  // absolute path of a directory that may be used
	Path string `json:"path"` // below it, clean; "." for all of a directory
	URL  string `json:"url"`
}

// String is the copy as a message names it. The query of a URL can be a signature.
func (c Copy) String() string {
	source, _, _ := strings.Cut(c.URL, "?")
	return c.Path + "=" + source
}

// Order says what a child copies.
type Order struct {
	In     bool   `json:"in"` // from the URLs; else to them
	Copies []Copy `json:"copies"`
	// Credentials is a file of S3 credentials; none: the environment names them.
	Credentials []byte `json:"credentials,omitempty"`
	Tag         string `json:"tag"` // differs between tasks that may write to one directory: part of temporary names
}

// Kind is the kind of a failure.
type Kind uint8

// The kinds.
const (
	Permanent   Kind = iota // another node and another try have it, too
	Credentials             // S3 refused the credentials
	Temporary               // a server or the network did not work in any try
)

// Failure is why something was not copied.
type Failure struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
}

// Answer is the result of a child. Without failures all was copied.
type Answer struct {
	Failures []Failure `json:"failures,omitempty"`
	Bytes    int64     `json:"bytes"` // that were copied
}

// ChildCommand is the first argument with which a program has to call ChildMain.
const ChildCommand = "stage"

// Variables are the environment variables that a child gets from the job: see checkpoint.S3Variables.
var Variables = checkpoint.S3Variables

// Run copies in a child process. An order for inputs ends with the first failure, one for outputs tries everything. The
// error is that of ctx, or of a child that could not work.
func Run(ctx context.Context, c userchild.Command, o Order) (Answer, error) {
	c.Name, c.Private = ChildCommand, true
	var answer Answer
	if err := userchild.Run(ctx, c, o, &answer); err != nil {
		if ctx.Err() != nil {
			return answer, ctx.Err()
		}
		return answer, fmt.Errorf("staging: %w", err)
	}
	return answer, nil
}

// ChildMain is the child of Run. It returns the exit status.
func ChildMain(ctx context.Context, in io.Reader, out io.Writer) int {
	if userchild.Hide(out) != nil {
		return 3
	}
	return userchild.Serve(in, out, func(o Order) Answer {
		if err := useCredentials(o.Credentials); err != nil {
			return Answer{Failures: []Failure{{Kind: Temporary, Text: err.Error()}}}
		}
		return newStager(o.Tag).run(ctx, o)
	})
}

// useCredentials gives this process a file of S3 credentials, in memory.
func useCredentials(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	fd, err := unix.MemfdCreate("credentials", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("credentials in memory: %w", err)
	}
	if _, err := unix.Write(fd, text); err != nil { // it stays open until the process ends
		return fmt.Errorf("credentials in memory: %w", err)
	}
	// The job must not choose another profile of the site's file.
	return errors.Join(os.Unsetenv("AWS_PROFILE"), os.Setenv(checkpoint.CredentialsVariable, fmt.Sprintf("/proc/self/fd/%d", fd)))
}

const (
	// maxTries is how often a file is tried, and firstPause and maxPause bound the pauses between tries, which double.
	maxTries             = 5
	firstPause, maxPause = time.Second, 15 * time.Second
	// stallTimeout is how long a copy may make no progress.
	stallTimeout = 3 * time.Minute
	// maxFiles is the most files of a directory, and maxSize the most bytes of a file: the limit of S3.
	maxFiles = 1_000_000
	maxSize  = 5 << 40
	// maxFailures is how many failures an answer has.
	maxFailures = 8
	// workers is how many files of a directory are copied at a time.
	workers = 4
)

// stager copies.
type stager struct {
	tag    string
	pause  time.Duration
	stall  time.Duration
	client *http.Client
	guard  http.RoundTripper
}

func newStager(tag string) *stager {
	s := &stager{tag: tag, pause: firstPause, stall: stallTimeout, guard: guarded()}
	s.client = &http.Client{Transport: s.guard, CheckRedirect: checkRedirect}
	return s
}

// run carries out an order.
func (s *stager) run(ctx context.Context, o Order) (a Answer) {
	for _, c := range o.Copies {
		n, err := s.copy(ctx, c, o.In)
		a.Bytes += n
		if err == nil {
			continue
		}
		if len(a.Failures) < maxFailures {
			a.Failures = append(a.Failures, Failure{Kind: kindOf(err), Text: c.String() + ": " + short(err)})
		}
		if o.In || ctx.Err() != nil {
			return a
		}
	}
	return a
}

// copy copies one file or directory, and returns the number of bytes.
func (s *stager) copy(ctx context.Context, c Copy, in bool) (int64, error) {
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		return 0, local(fmt.Errorf("the directory cannot be used: %w", err))
	}
	defer root.Close()
	scheme, _, _ := strings.Cut(c.URL, "://")
	switch {
	case scheme == "rsync" && in:
		return s.fromRsync(ctx, root, c)
	case scheme == "rsync":
		return s.toRsync(ctx, root, c)
	case scheme == "s3" && in:
		return s.fromBucket(ctx, root, c)
	case scheme == "s3":
		return s.toBucket(ctx, root, c)
	case (scheme == "http" || scheme == "https") && in:
		return s.retry(ctx, func(ctx context.Context, moved func()) (int64, error) { return s.get(ctx, root, c, moved) })
	case scheme == "http" || scheme == "https":
		return s.retry(ctx, func(ctx context.Context, moved func()) (int64, error) { return s.put(ctx, root, c, moved) })
	}
	return 0, fmt.Errorf("no %q URL can be copied", scheme)
}

// errStalled means that a copy made no progress.
var errStalled = errors.New("no byte was transferred")

// retry calls try until it succeeds or fails permanently, a few times. try calls moved for each progress.
func (s *stager) retry(ctx context.Context, try func(ctx context.Context, moved func()) (int64, error)) (n int64, err error) {
	for i, pause := 1, s.pause; ; i, pause = i+1, min(2*pause, maxPause) {
		n, err = s.tryOnce(ctx, try)
		t := (*temporaryError)(nil)
		if err == nil || ctx.Err() != nil || !errors.As(err, &t) {
			return n, err
		}
		if i == maxTries {
			return n, &temporaryError{err: fmt.Errorf("%w, in each of %d tries", err, maxTries)}
		}
		wait := max(pause/2+rand.N(pause/2+1), min(t.after, maxPause))
		select {
		case <-ctx.Done():
			return n, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// tryOnce calls try with a context that ends when there is no progress.
func (s *stager) tryOnce(ctx context.Context, try func(context.Context, func()) (int64, error)) (int64, error) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(s.stall, func() { cancel(errStalled) })
	defer stalled.Stop()
	n, err := try(limited, func() { stalled.Reset(s.stall) })
	if err != nil && errors.Is(context.Cause(limited), errStalled) {
		return n, &temporaryError{err: fmt.Errorf("%w for %s", errStalled, s.stall)}
	}
	return n, err
}

// temporaryError is a failure that another try may cure, after a pause that the server requests.
type temporaryError struct {
	err   error
	after time.Duration
}

// Error returns the message of the cause.
func (t *temporaryError) Error() string { return t.err.Error() }

// Unwrap returns the cause.
func (t *temporaryError) Unwrap() error { return t.err }

// kindOf classifies an error.
func kindOf(err error) Kind {
	t := (*temporaryError)(nil)
	switch {
	case errors.Is(err, checkpoint.ErrCredentials):
		return Credentials
	case errors.As(err, &t):
		return Temporary
	}
	return Permanent
}

// maxText is the most bytes of the text of an error, which a server may have written.
const maxText = 400

// short returns the text of an error.
func short(err error) string {
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}

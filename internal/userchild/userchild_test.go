package userchild

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "double":
			os.Exit(Serve(os.Stdin, os.Stdout, func(n int) int { return 2 * n }))
		case "babble":
			_, _ = io.Copy(os.Stdout, endless{}) // until the daemon closes the pipe
			os.Exit(0)
		case "fail":
			os.Exit(7)
		}
	}
	os.Exit(m.Run())
}

// endless is a text without an end.
type endless struct{}

// Read fills the buffer.
func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("1"), len(p))), nil }

// TestRun checks the answers of children, also of those that answer nothing or too much.
func TestRun(t *testing.T) {
	run := func(ctx context.Context, name string) (answer int, err error) {
		err = Run(ctx, Command{Program: "/proc/self/exe", Name: name}, 21, &answer)
		return answer, err
	}
	if answer, err := run(t.Context(), "double"); err != nil || answer != 42 {
		t.Errorf("%d, %v", answer, err)
	}
	if _, err := run(t.Context(), "fail"); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("%v", err)
	}
	if _, err := run(t.Context(), "babble"); err == nil {
		t.Error("an endless answer was taken")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run(ended, "double"); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

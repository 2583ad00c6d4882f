package userchild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "double":
			if Hide(os.Stdout) != nil {
				os.Exit(3)
			}
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

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("1"), len(p))), nil }

// TestRun checks the answers of children, also of those that answer nothing or too much.
func TestRun(t *testing.T) {
	run := func(ctx context.Context, name string, private bool) (answer int, err error) {
		err = Run(ctx, Command{Program: "/proc/self/exe", Name: name, Private: private}, 21, &answer)
		return answer, err
	}
	for _, private := range []bool{false, true} {
		if answer, err := run(t.Context(), "double", private); err != nil || answer != 42 {
			t.Errorf("private %v: %d, %v", private, answer, err)
		}
		if _, err := run(t.Context(), "fail", private); err == nil || !strings.Contains(err.Error(), "exit status 7") {
			t.Errorf("private %v: %v", private, err)
		}
	}
	if _, err := run(t.Context(), "babble", false); err == nil {
		t.Error("an endless answer was taken")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run(ended, "double", true); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", fmt.Sprint(err))
	}
}

package gctld

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/config"
)

// TestFenceProgram runs programs that succeed, fail, hang, flood and leave processes behind.
func TestFenceProgram(t *testing.T) {
	t.Parallel()
	if fenceBy(config.Fence{}) != nil {
		t.Error("a function without a program")
	}
	dir := t.TempDir()
	for i, x := range []struct{ script, want string }{
		{`[ "$1" = n1 ] && [ "$GREYLAG_NODE" = n1 ] && [ -z "$HOME" ]`, ""},
		{"echo on; echo no route to the BMC >&2; exit 3", ": exit status 3: no route to the BMC"},
		{"exit 1", ": exit status 1"},
		{"kill -KILL $$", ": signal: killed"},
		{"sleep 1000 & sleep 1000", " was killed after 2s"},
		{"trap '' TERM; while :; do yes; done", " was killed after 2s"},
		{"head -c 100000000 /dev/zero; echo; head -c 300 /dev/zero | tr '\\0' x; exit 1", ": exit status 1: " + strings.Repeat("x", maxFenceLine) + "..."},
		{"sleep 1000 & exit 0", " left child processes"},
	} {
		path := filepath.Join(dir, fmt.Sprint("fence", i))
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+x.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			err := fenceBy(config.Fence{Program: path, Timeout: 2 * time.Second})(t.Context(), "n1")
			if got := strings.TrimPrefix(fmt.Sprint(err), path); got != x.want && (err != nil || x.want != "") {
				t.Errorf("%q, want %q", got, x.want)
			}
		})
	}
	t.Run("no such program", func(t *testing.T) {
		if err := fenceBy(config.Fence{Program: dir + "/none", Timeout: time.Second})(t.Context(), "n1"); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Error(err)
		}
	})
	t.Run("the term ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := fenceBy(config.Fence{Program: "/bin/true", Timeout: time.Minute})(ctx, "n1"); err == nil {
			t.Error("no error")
		}
	})
}

package runtime_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/runtime"
)

func TestTaskID(t *testing.T) {
	ids := []runtime.TaskID{{Job: 10, Attempt: 1}, {Job: 9, Attempt: 12}, {Job: 9, Attempt: 3}}
	slices.SortFunc(ids, runtime.TaskID.Compare)
	if got := ids[0].String() + " " + ids[1].String() + " " + ids[2].String(); got != "j9-a3 j9-a12 j10-a1" {
		t.Error(got)
	}
	for _, bad := range []string{"", "j", "j1", "j1-a", "1-a1", "j01-a1", "j1-a1x", "j-1-a1", "j1-a4294967296", "jj1-a1", "j1-a+1"} {
		if id, err := runtime.ParseTaskID(bad); !errors.Is(err, runtime.ErrInvalid) {
			t.Errorf("%q is %v, %v", bad, id, err)
		}
	}
}

func FuzzParseTaskID(f *testing.F) {
	f.Add("j7-a1")
	f.Add("j18446744073709551615-a4294967295")
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := runtime.ParseTaskID(text); err == nil && id.String() != text {
			t.Errorf("%q is %s", text, id)
		}
	})
}

func TestCheck(t *testing.T) {
	script := func(change func(*runtime.Spec)) runtime.Spec {
		s := runtime.Spec{Script: []byte("#!/bin/sh\n"), WorkDir: "/home/u", Env: []string{"A="}}
		change(&s)
		return s
	}
	good := []runtime.Spec{
		script(func(*runtime.Spec) {}),
		script(func(s *runtime.Spec) { s.Mounts = []runtime.Mount{{Source: "/a", Target: "/b"}} }),
		{Args: []string{"true"}},
		{Image: "x@sha256:0"},
	}
	for _, s := range good {
		if err := s.Check(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	bad := map[string]runtime.Spec{
		"neither":        {},
		"both":           script(func(s *runtime.Spec) { s.Args = []string{"true"} }),
		"begin with #!":  {Script: []byte("echo\n")},
		"limit is":       {Script: []byte("#!/bin/sh" + strings.Repeat("x", runtime.MaxScript))},
		"empty command":  {Args: []string{""}},
		"absolute":       script(func(s *runtime.Spec) { s.Stdout = "out" }),
		"not on /":       script(func(s *runtime.Spec) { s.Mounts = []runtime.Mount{{Source: "/a", Target: "/b/.."}} }),
		"negative limit": script(func(s *runtime.Spec) { s.CPUs = -1 }),
		"NUL":            script(func(s *runtime.Spec) { s.Env = []string{"A=\x00"} }),
		"NAME=value":     script(func(s *runtime.Spec) { s.Env = []string{"=x"} }),
	}
	for want, s := range bad {
		if err := s.Check(); !errors.Is(err, runtime.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

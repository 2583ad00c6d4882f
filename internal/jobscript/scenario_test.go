package jobscript

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// noon is a Saturday.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestScenarios runs testdata/*.txt: lines "$ arguments", "% NAME=VALUE" and "| script", answered by
// "= options", "warning: ...", "error: ..." and "hint: ...".
func TestScenarios(t *testing.T) { scenario.Cases(t, "testdata/*.txt", run) }

func run(t *testing.T, in string) string {
	t.Helper()
	var args, env, script []string
	for _, line := range strings.Split(in, "\n") {
		mark, text, _ := strings.Cut(line, " ")
		switch mark {
		case "$":
			words, err := split(text)
			if err != nil {
				t.Fatal(err)
			}
			args = append(args, words...)
		case "%":
			env = append(env, text)
		case "|":
			script = append(script, text)
		}
	}
	if script == nil {
		script = []string{"#!/bin/sh", "true"}
	}
	var out []string
	s, err := Read("job.sh", strings.NewReader(strings.Join(script, "\n")+"\n"))
	if err != nil {
		return strings.Join(failed(out, err), "\n")
	}
	line, err := CommandLine(args)
	if err != nil {
		return strings.Join(failed(out, err), "\n")
	}
	o, warnings, err := Resolve(line, env, s, noon)
	for _, w := range warnings {
		out = append(out, "warning: "+w)
	}
	if err != nil {
		return strings.Join(failed(out, err), "\n")
	}
	return strings.Join(append(out, "= "+describe(o)), "\n")
}

func failed(out []string, err error) []string {
	var all Faults
	if errors.As(err, &all) {
		for _, f := range all {
			out = append(out, "error: "+f.Error(), "hint: "+f.Hint())
		}
		return out
	}
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return append(out, "error: "+err.Error(), "hint: "+h.Hint())
	}
	return append(out, "error: "+err.Error())
}

// describe lists the fields that are set.
func describe(o Options) string {
	var words []string
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Field(i), prefix+v.Type().Field(i).Name
			if f.IsZero() || !v.Type().Field(i).IsExported() {
				continue
			}
			switch x := f.Interface().(type) {
			case cluster.Request, Export, cluster.WarnSignal:
				walk(name+".", f)
			case *time.Duration:
				words = append(words, fmt.Sprintf("%s=%s", name, cluster.FormatLimit(*x)))
			case time.Time:
				words = append(words, fmt.Sprintf("%s=%s", name, x.Format("2006-01-02T15:04:05")))
			default:
				words = append(words, fmt.Sprintf("%s=%v", name, x))
			}
		}
	}
	walk("", reflect.ValueOf(o))
	return strings.Join(words, " ")
}

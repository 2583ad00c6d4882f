package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// kinds is every kind of file with its example, its defaults and its loader.
func kinds() map[string]struct {
	defaults settings
	load     func(path string) (settings, error)
} {
	type kind = struct {
		defaults settings
		load     func(path string) (settings, error)
	}
	controller, node, auth, client := DefaultController(), DefaultNode(), DefaultAuth(), DefaultClient()
	return map[string]kind{
		"gctld":  {&controller, func(p string) (settings, error) { c, err := LoadController(p); return &c, err }},
		"gnoded": {&node, func(p string) (settings, error) { c, err := LoadNode(p); return &c, err }},
		"gauthd": {&auth, func(p string) (settings, error) { c, err := LoadAuth(p); return &c, err }},
		"client": {&client, func(p string) (settings, error) { c, err := LoadClient(p); return &c, err }},
	}
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

// commented matches a line of an example that shows a setting, not prose.
var commented = regexp.MustCompile(`(?m)^#([a-z\[])`)

// TestExamples loads each file of etc/ as it is shipped, and with every setting taken in: both must be
// the defaults, and no key may be missing.
func TestExamples(t *testing.T) {
	for name, kind := range kinds() {
		path := filepath.Join("../../etc", name+".toml")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		empty, err := kind.load(write(t, filepath.Join(t.TempDir(), "empty.toml"), ""))
		if err != nil {
			t.Fatal(err)
		}
		shipped, err := kind.load(path)
		if err != nil || !reflect.DeepEqual(shipped, empty) {
			t.Errorf("%s as shipped: %+v, %v, want %+v", path, shipped, err, empty)
		}
		all := commented.ReplaceAllString(string(text), "$1")
		full, err := kind.load(write(t, filepath.Join(t.TempDir(), "full.toml"), all))
		if err != nil {
			t.Fatalf("%s with every setting: %v", path, err)
		}
		if node, ok := full.(*Node); ok { // the one setting whose example is not the default
			want := []SimulatedGPUs{{Count: 4, Type: "h100", Memory: 80 * cluster.GiB}}
			if !reflect.DeepEqual(node.SimulatedGPUs, want) {
				t.Errorf("simulated GPUs %+v", node.SimulatedGPUs)
			}
			if len(node.MIG) != 1 || len(node.MIG[0].Layout) != 4 {
				t.Errorf("MIG %+v", node.MIG)
			}
			node.SimulatedGPUs, node.MIG = nil, nil
			for _, list := range []*[]string{&node.Features, &node.Metrics.Compat} {
				if len(*list) == 0 {
					*list = nil
				}
			}
		}
		if controller, ok := full.(*Controller); ok {
			for _, list := range []*[]string{&controller.Metrics.Compat, &controller.Burst.Args, &controller.Burst.Environment} {
				if len(*list) == 0 {
					*list = nil
				}
			}
		}
		if !reflect.DeepEqual(full, empty) {
			t.Errorf("%s with every setting: %+v, want the defaults %+v", path, full, empty)
		}
		strict.Locate(strict.Source{Name: path, Text: []byte(all)}, func(c *strict.Checker) {
			for _, key := range keysOf("", reflect.TypeOf(kind.defaults).Elem()) {
				if !c.IsSet(key) && key != "-" {
					t.Errorf("%s does not show %s", path, key)
				}
			}
		})
	}
}

// keysOf lists the paths of all keys; lists of tables by their first element.
func keysOf(prefix string, t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		field := t.Field(i)
		key := strict.Join(prefix, field.Tag.Get("toml"))
		keys = append(keys, key)
		switch ft := field.Type; {
		case ft.Kind() == reflect.Struct:
			keys = append(keys, keysOf(key, ft)...)
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct && ft != reflect.TypeFor[strict.Gres]():
			keys = append(keys, keysOf(key+"[0]", ft.Elem())...)
		}
	}
	return keys
}

func TestAbsentFiles(t *testing.T) {
	for name, kind := range kinds() {
		if _, err := kind.load(filepath.Join(t.TempDir(), "absent.toml")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s that was named: %v", name, err)
		}
	}
	t.Setenv(ClientEnv, write(t, filepath.Join(t.TempDir(), "c.toml"), `output = "json"`))
	if c, err := LoadClient(""); err != nil || c.Output != "json" {
		t.Errorf("%s: %+v, %v", ClientEnv, c, err)
	}
	t.Setenv(ClientEnv, "/absent/c.toml")
	if _, err := LoadClient(""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s names no file: %v", ClientEnv, err)
	}
}

// TestScripts runs testdata/*.txt: files marked "-- NAME", then after "----" what loading the first
// one answers.
func TestScripts(t *testing.T) {
	scenario.Files(t, "testdata/*.txt", func(*testing.T) func(*testing.T, *datadriven.TestData) string {
		return func(t *testing.T, d *datadriven.TestData) string {
			return runScript(t, d.FullCmd()+"\n"+d.Input+"\n")
		}
	})
}

func runScript(t *testing.T, input string) string {
	dir := t.TempDir()
	var first string
	for part := range strings.SplitSeq(input, "-- ") {
		name, text, ok := strings.Cut(part, "\n")
		if !ok {
			continue
		}
		path := write(t, filepath.Join(dir, name), text)
		if first == "" {
			first = path
		}
	}
	cfg, err := kinds()[strings.TrimSuffix(filepath.Base(first), ".toml")].load(first)
	if err != nil {
		var faults strict.Faults
		if !errors.As(err, &faults) {
			t.Fatal(err)
		}
		return strings.ReplaceAll(err.Error(), dir+"/", "") + "\n"
	}
	v := reflect.ValueOf(cfg).Elem()
	zero := reflect.ValueOf(kinds()[strings.TrimSuffix(filepath.Base(first), ".toml")].defaults).Elem()
	out := ""
	for i := range v.NumField() {
		if !reflect.DeepEqual(v.Field(i).Interface(), zero.Field(i).Interface()) {
			out += fmt.Sprintf("%s = %+v\n", v.Type().Field(i).Name, v.Field(i).Interface())
		}
	}
	return out
}

func TestHugeFileIsRefused(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "gauthd.toml"), strings.Repeat("#", maxFile+1))
	if _, err := LoadAuth(path); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

// FuzzDocument: no text crashes the loader, every fault has a line of the file, and a text without
// faults gives the same values twice.
func FuzzDocument(f *testing.F) {
	for name := range kinds() {
		text, err := os.ReadFile(filepath.Join("../../etc", name+".toml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(commented.ReplaceAllString(string(text), "$1"))
	}
	f.Add("a.b = {c = [1, {d = 2}]}\n[[x]]\n[[x.y]]\nz = 1\n[x.w]\n\"q\\n\" = 1")
	f.Fuzz(func(t *testing.T, text string) {
		cfg := DefaultNode()
		lines := strings.Count(text, "\n") + 1
		for _, fault := range strict.Decode("f", []strict.Source{{Name: "f", Text: []byte(text)}}, &cfg, func(c *strict.Checker) { cfg.check(&checker{c}) }) {
			if fault.Line == 0 && fault.File == "f" {
				continue // a value of this host that no line set
			}
			if fault.File != "f" || fault.Line < 1 || fault.Line > lines {
				t.Errorf("%q: %s, of %d lines", text, fault, lines)
			}
		}
	})
}

// TestAskOnly: a controller is named on a command line as it is in a file, but one alone.
func TestAskOnly(t *testing.T) {
	for named, want := range map[string]string{
		"ctl1": "ctl1:7117", "ctl1:81": "ctl1:81", "127.0.0.1": "127.0.0.1:7117", "::1": "[::1]:7117",
		"ctl1:none": "", ":7117": "", "ctl[1-2]": "", "": "",
	} {
		cfg := DefaultClient()
		err := cfg.AskOnly(named)
		if want == "" {
			if err == nil || cfg.Direct {
				t.Errorf("%q: %v", named, cfg.Controllers)
			}
			continue
		}
		if err != nil || !cfg.Direct || !slices.Equal(cfg.Controllers, []string{want}) {
			t.Errorf("%q: %v, %v, want %s", named, cfg.Controllers, err, want)
		}
	}
}

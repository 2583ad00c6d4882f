package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/greylag/greylag/internal/config/configtest"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/test/scenario"
)

const referenceDir = "../../docs/config"

// writeValue formats a value as a file has it.
func writeValue(v reflect.Value) string {
	text, err := toml.Marshal(map[string]any{"x": strict.EncodeValue(v).Interface()})
	if err != nil {
		panic(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(string(text), "x =")), "'", `"`)
}

// ownTypes are the types of the files by their Go names.
var ownTypes = map[string]string{"Duration": "duration", "Bytes": "size", "Gres": "table of integers"}

// references returns the pages of the configuration reference by their names.
func references() map[string]*configtest.Page {
	daemon := func(kind string, defaults any) *configtest.Page {
		return &configtest.Page{Defaults: defaults, Load: func(text string) string {
			dir, err := os.MkdirTemp("", "greylag-reference-")
			if err != nil {
				return err.Error()
			}
			defer os.RemoveAll(dir)
			path := filepath.Join(dir, kind+".toml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return err.Error()
			}
			_, err = kinds()[kind].load(path)
			return faultText(err)
		}}
	}
	pages := map[string]*configtest.Page{
		"gctld": daemon("gctld", DefaultController()), "gnoded": daemon("gnoded", DefaultNode()),
		"gauthd": daemon("gauthd", DefaultAuth()), "client": daemon("client", DefaultClient()),
	}
	for _, p := range pages {
		p.Write, p.Types = writeValue, ownTypes
		p.Elements = map[string]string{
			"simulated_gpus": "count = 1\ntype = \"h100\"\nmemory = \"1GiB\"\n", "mig": "layout = [\"3g.40gb\"]\n",
		}
	}
	return pages
}

func faultText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestReference: docs/config has each key of each file with its type and default, and files are
// refused right outside each documented range.
func TestReference(t *testing.T) {
	for name, page := range references() {
		path := filepath.Join(referenceDir, name+".md")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page.Text = string(text)
		if scenario.Rewrite() {
			page.Text = page.Update()
			write(t, path, page.Text)
		}
		for _, fault := range page.Faults() {
			t.Errorf("%s: %s", path, fault)
		}
	}
}

// TestReferenceFindsFaults: a page without a key, or with a wrong type, default or range, is faulty.
func TestReferenceFindsFaults(t *testing.T) {
	p := references()["gauthd"]
	full := "| `socket` | string | `\"/run/greylag/auth.sock\"` | a | b |\n| `pki_dir` | string | `\"/var/lib/greylag/auth/pki\"` | a | b |\n" +
		"| `controllers` | list of strings | `[\"localhost:7117\"]` | a | b |\n| `log.level` | string | `\"info\"` | `debug`, `info`, `warn`, `error` | b |\n" +
		"| `log.format` | string | `\"text\"` | `text`, `json` | b |\n"
	for _, c := range []struct{ old, now, want string }{
		{"", "", ""}, {"`socket`", "`sockets`", "socket: has no row"}, {"| string | `\"info\"`", "| integer | `\"info\"`", "type is integer"},
		{"`\"info\"`", "`\"warn\"`", "default is"}, {"`warn`, ", "", "range is"}, {"| a | b |", "|  | b |", "empty cell"},
	} {
		p.Text = strings.Replace(full, c.old, c.now, 1)
		if faults := strings.Join(p.Faults(), "\n"); !strings.Contains(faults, c.want) || c.want == "" && faults != "" {
			t.Errorf("%q for %q: %q, want %q", c.now, c.old, faults, c.want)
		}
	}
	node := references()["gnoded"]
	node.Text = "| `hook_timeout` | duration | `\"5m\"` | at least `\"2s\"` | m |\n| `cpus` | integer | `0` | `0` to `70000` | m |\n"
	faults := strings.Join(node.Faults(), "\n")
	if !strings.Contains(faults, "hook_timeout: "+`"1.999999999s" is accepted`) || !strings.Contains(faults, "cpus: 70000 is accepted: false") {
		t.Error(faults)
	}
}

// TestRenamedKeys: a former key is refused with the present one.
func TestRenamedKeys(t *testing.T) {
	pages := references()
	for text, want := range map[string]string{
		"gctld [limits]\npatience = 1":         "limits.patience: unknown key; did you mean read_timeout?",
		"gnoded simulated_gpus_after = \"1s\"": "simulated_gpus_after: unknown key; did you mean simulated_gpu_offset?",
	} {
		page, text, _ := strings.Cut(text, " ")
		if got := pages[page].Load(text); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", page, got, want)
		}
	}
}

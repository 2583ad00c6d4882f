package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/greylag/greylag/internal/config/configtest"
	"github.com/greylag/greylag/pkg/cluster"
)

const referenceDir = "../../docs/config"

// writeValue formats a value as a file has it.
func writeValue(v reflect.Value) string {
	text, err := toml.Marshal(map[string]any{"x": written(v).Interface()})
	if err != nil {
		panic(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(string(text), "x =")), "'", `"`)
}

// own types of the files, by their Go names.
var ownTypes = map[string]string{
	"Duration": "duration", "Bytes": "size", "depth": "integer or `unlimited`", "horizon": "duration or `unlimited`", "moment": "time",
	"thousandths": "table of numbers", "counts": "table of integers", "share": "integer or `parent`", "limitList": "list of limits",
}

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
	standard := cluster.DefaultPolicy()
	document := func(defaults any, read func(text []byte) error) *configtest.Page {
		return &configtest.Page{Defaults: defaults, Load: func(text string) string { return faultText(read([]byte(text))) }}
	}
	pages := map[string]*configtest.Page{
		"gctld": daemon("gctld", DefaultController()), "gnoded": daemon("gnoded", DefaultNode()),
		"gauthd": daemon("gauthd", DefaultAuth()), "client": daemon("client", DefaultClient()),
		"policy":   document(fileOf(&standard), func(text []byte) error { _, err := ReadPolicy("policy.toml", text); return err }),
		"accounts": document(accounts{}, func(text []byte) error { _, _, err := ReadAccounts("accounts.toml", text); return err }),
		"machine":  document(fleet{}, func(text []byte) error { _, _, err := ReadFleet("machine.toml", text); return err }),
	}
	for _, p := range pages {
		p.Write, p.Types = writeValue, ownTypes
		p.Elements = map[string]string{
			"partition": "name = \"p\"\n", "qos": "name = \"standard\"\n", "account": "name = \"a\"\n",
			"user": "name = \"u\"\naccount = \"a\"\n", "node": "names = [\"n\"]\ncpus = 1\n",
			"simulated_gpus": "count = 1\ntype = \"h100\"\nmemory = \"1GiB\"\n",
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
		if *update {
			page.Text = page.Update()
			write(t, path, page.Text)
		}
		for _, fault := range page.Faults() {
			t.Errorf("%s: %s", path, fault)
		}
	}
}

// TestTopologyReference: the page of the topology files names the keys that the reader knows.
func TestTopologyReference(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(referenceDir, "topology.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`known here: (.*)`)
	for file, content := range map[string]string{
		"t.conf": "SwitchName=s Zzz=1\n",
		"t.yaml": "- topology: t\n  zzz: 1\n  tree:\n    switches:\n      - switch: s\n        zzz: 1\n",
	} {
		_, err := ReadTopology(file, []byte(content))
		lists := known.FindAllStringSubmatch(faultText(err), -1)
		if len(lists) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		for _, list := range lists {
			for _, key := range strings.Split(list[1], ", ") {
				if !strings.Contains(string(text), "`"+key+"`") {
					t.Errorf("docs/config/topology.md lacks the key %s of %s", key, file)
				}
			}
		}
	}
}

// TestRenamedKeys: a former key is refused with the present one.
func TestRenamedKeys(t *testing.T) {
	pages := references()
	for old, now := range renamedKeys {
		table, key := "", old
		if i := strings.LastIndexByte(old, '.'); i >= 0 {
			table, key = old[:i], old[i+1:]
		}
		head := ""
		switch {
		case table == "reservation":
			head = "[[reservation]]\n"
		case table != "":
			head = "[" + table + "]\n"
		}
		named := slices.ContainsFunc([]string{"gctld", "gnoded", "policy"}, func(page string) bool {
			return strings.Contains(pages[page].Load(head+key+" = 1\n"), key+": unknown key; did you mean "+now+"?")
		})
		if !named {
			t.Errorf("%s: no error names %s", old, now)
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

// TestDocumentedFiles: examples of files in documents are read without a fault.
func TestDocumentedFiles(t *testing.T) {
	pages := references()
	block := regexp.MustCompile("(?ms)^```toml$\n(.*?)^```$")
	for page, kind := range map[string]string{"admin.md": "policy", "gsim.md": "machine"} {
		text, err := os.ReadFile(filepath.Join(referenceDir, "..", page))
		if err != nil {
			t.Fatal(err)
		}
		examples := block.FindAllStringSubmatch(string(text), -1)
		if len(examples) == 0 {
			t.Errorf("docs/%s has no example", page)
		}
		for _, m := range examples {
			if faults := pages[kind].Load(m[1]); faults != "" {
				t.Errorf("docs/%s: %s", page, faults)
			}
		}
	}
}

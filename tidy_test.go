// Package greylag holds no code: it is the root of the module, and holds the tests of the structure
// of the tree.
package greylag

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/greylag/greylag/"

// layers places every package. A package may import those of its own number and
// below, but those of layers 1, 3 and 4 import each other only as listed in sameLayer.
var layers = map[string]int{
	"pkg/cluster": 0, "internal/cow": 0, "internal/codec": 0, "internal/hostlist": 0, "internal/heap": 0, "internal/version": 0,
	"internal/procedure": 0, "internal/hint": 0,
	"pkg/topology": 1, "pkg/fairshare": 1, "pkg/accounting": 1, "pkg/backfill": 1,
	"internal/schedule": 2, "internal/reconcile": 2, "internal/reconcile/instances": 2, "internal/command": 2, "internal/audit": 2,
	"internal/state":   3,
	"internal/raftlog": 4, "internal/archive": 4, "internal/taskdb": 4, "internal/wire": 4,
	"internal/runtime": 4, "internal/gpu": 4, "internal/health": 4, "internal/auth": 4, "internal/pki": 4,
	"internal/config": 4, "internal/clusterdoc": 4, "internal/topologyimport": 4, "internal/slurmconf": 4, "internal/jobscript": 4, "internal/sim": 4, "internal/simgpu": 4,
	"internal/report": 4, "internal/report/tally": 1,
	"internal/image": 4, "internal/userfile": 4, "internal/ginit": 4, "internal/shim": 4, "internal/cgroup": 4, "internal/scratch": 4, "internal/checkpoint": 4, "internal/burst": 4, "internal/leased": 4, "internal/picture": 4, "internal/manpage": 4, "api": 4, "internal/boltcheck": 4, "internal/spans": 4, "internal/step": 4, "internal/jobmail": 4, "internal/tunnel": 4, "internal/submitfilter": 4, "internal/runas": 4, "internal/staging": 4, "internal/userchild": 4,
	"internal/controller": 5, "internal/server": 5, "internal/server/call": 5, "internal/server/encoding": 5, "internal/server/limits": 5, "internal/server/certs": 5, "internal/server/journals": 5, "internal/server/logbroker": 5,
	"internal/server/views": 5, "internal/server/joblist": 5, "internal/server/reports": 5, "internal/agent": 5, "internal/web": 5, "internal/metrics": 5,
	"internal/client": 5, "internal/cli": 5, "internal/gctld": 5, "internal/daemonmain": 5,
	"cmd": 6, "test": 6,
	"burst/aws": 6, // a module of its own
}

// owners says which package may use which outside module.
var owners = map[string][]string{
	"github.com/hashicorp/":             {"internal/raftlog"},
	"github.com/cespare/xxhash":         {"internal/state", "pkg/accounting"},
	"go.etcd.io/bbolt":                  {"internal/archive", "internal/taskdb", "internal/raftlog"},
	"github.com/containerd/":            {"internal/runtime/containerd", "internal/image", "internal/shim/service"},
	"github.com/distribution/reference": {"internal/image"},
	"github.com/opencontainers/":        {"internal/runtime/containerd", "internal/image"},
	"tags.cncf.io/":                     {"internal/runtime/containerd"},
	"github.com/NVIDIA/":                {"internal/gpu/nvml", "cmd/gnvml"},
	"github.com/spf13/":                 {"internal/cli", "cmd"},
	"connectrpc.com/":                   {"api", "internal/wire", "internal/server", "internal/client", "internal/cli", "internal/agent", "internal/gctld"},
	"google.golang.org/protobuf":        {"api", "internal/wire", "internal/server", "internal/client", "internal/cli", "internal/agent", "internal/shim/service", "internal/submitfilter", "test/bench"},
	"github.com/pelletier/go-toml":      {"internal/config", "internal/clusterdoc"},
	"golang.org/x/sys":                  {"internal/runtime", "internal/agent", "internal/simgpu", "internal/gpu", "internal/cgroup", "internal/scratch", "internal/auth", "internal/raftlog", "internal/cli", "internal/ginit", "internal/shim", "internal/userfile", "internal/step", "internal/runas", "internal/burst", "internal/staging", "internal/userchild"},
	"golang.org/x/time":                 {"internal/server"},
	"github.com/robfig/cron":            {"internal/server"},
	"golang.org/x/sync":                 {"internal/metrics"},
	"github.com/prometheus/":            {"internal/metrics"},
	"golang.org/x/net":                  {"internal/server", "internal/client"},
	"github.com/klauspost/compress":     {"internal/archive", "internal/raftlog"},
	"github.com/rogpeppe/go-internal":   {"internal/cli"},
	"github.com/parquet-go/":            {"internal/report/parquet"},
	"github.com/minio/minio-go":         {"internal/checkpoint", "internal/staging"},
	"gopkg.in/ini.v1":                   {"internal/checkpoint"},
	"github.com/johannesboyne/gofakes3": {"internal/checkpoint", "internal/agent", "internal/staging", "test/e2e"},
	"github.com/anishathalye/porcupine": {"test"},
	"github.com/aws/":                   {"burst/aws"},
	"go.yaml.in/yaml":                   {"internal/topologyimport"},
	"github.com/cockroachdb/datadriven": {"test/scenario"},
}

// impure is what layers 0 to 3 may not import, and impureCalls what they may not call.
var impure = []string{"context", "os", "net", "sync", "log", "math/rand", "syscall", "runtime", "unsafe", "crypto/rand"}

var impureCalls = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "Tick": true,
	"NewTimer": true, "NewTicker": true, "AfterFunc": true,
}

type source struct {
	path string // relative to the root
	dir  string
	test bool
	file *ast.File
	fset *token.FileSet
}

func sources(t *testing.T) []source {
	t.Helper()
	all, err := parseSources()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parseSources parses the files of the main module once for all tests.
var parseSources = sync.OnceValues(func() ([]source, error) {
	var all []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && p != "." || p == "tools" || p == "api/gen" || p == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{p, path.Dir(filepath.ToSlash(p)), strings.HasSuffix(p, "_test.go"), f, fset})
		return nil
	})
	return all, err
})

// placed is the entry of layers that a folder belongs to.
func placed(dir string) (string, int, bool) {
	for d := dir; d != "."; d = path.Dir(d) {
		if n, ok := layers[d]; ok {
			return d, n, true
		}
	}
	return "", 0, false
}

func TestLayers(t *testing.T) {
	for _, s := range sources(t) {
		if s.dir == "." || s.test {
			continue
		}
		folder, layer, ok := placed(s.dir)
		if !ok {
			t.Errorf("%s: the folder is in no layer; place it in tidy_test.go", s.path)
			continue
		}
		for _, im := range s.file.Imports {
			name, _ := strconv.Unquote(im.Path.Value)
			if inner, ok := strings.CutPrefix(name, module); ok {
				if why := forbiddenInside(folder, layer, inner); why != "" {
					t.Errorf("%s imports %s: %s", s.path, inner, why)
				}
				continue
			}
			if why := forbiddenOutside(s.dir, layer, name); why != "" {
				t.Errorf("%s imports %s: %s", s.path, name, why)
			}
		}
	}
}

// sameLayer lists which packages may import which others of their layer.
var sameLayer = map[string][]string{
	"internal/wire":           {"api"},
	"internal/checkpoint":     {"internal/userchild"},
	"internal/staging":        {"internal/checkpoint", "internal/userchild"},
	"internal/submitfilter":   {"api", "internal/runas"},
	"internal/burst":          {"internal/runas", "internal/runtime"},
	"internal/step":           {"internal/tunnel"},
	"internal/runtime":        {"internal/image", "internal/cgroup", "internal/simgpu", "internal/ginit", "internal/shim", "internal/userfile"},
	"internal/ginit":          {"internal/userfile"},
	"internal/scratch":        {"internal/userfile"},
	"internal/gpu":            {"internal/simgpu", "internal/runtime"},
	"internal/health":         {"internal/gpu"},
	"internal/auth":           {"internal/pki"},
	"internal/raftlog":        {"internal/boltcheck"},
	"internal/archive":        {"internal/boltcheck"},
	"internal/taskdb":         {"internal/boltcheck"},
	"internal/sim":            {"internal/picture"},
	"internal/clusterdoc":     {"internal/config"},
	"internal/topologyimport": {"internal/config"},
	"internal/slurmconf":      {"internal/config"},
	"pkg/backfill":            {"pkg/topology"},
	"internal/state":          {"internal/command"},
}

func forbiddenInside(folder string, layer int, inner string) string {
	other, n, ok := placed(inner)
	switch {
	case !ok:
		return "that folder is in no layer"
	case other == folder:
		return ""
	case n > layer:
		return fmt.Sprintf("layer %d may not know layer %d", layer, n)
	case n < layer || n == 0 || n >= 5 || n == 2:
		return ""
	}
	for _, allowed := range sameLayer[folder] {
		if allowed == other {
			return ""
		}
	}
	return "folders of one layer do not import each other (sameLayer in tidy_test.go lists the exceptions)"
}

func forbiddenOutside(dir string, layer int, name string) string {
	first, _, _ := strings.Cut(name, "/")
	if !strings.Contains(first, ".") {
		if layer > 3 {
			return ""
		}
		for _, bad := range impure {
			if name == bad || strings.HasPrefix(name, bad+"/") {
				return "the core is pure: no clocks, I/O, locks, logging or chance"
			}
		}
		return ""
	}
	for prefix, folders := range owners {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for _, folder := range folders {
			if dir == folder || strings.HasPrefix(dir, folder+"/") {
				return ""
			}
		}
		return "only " + strings.Join(folders, ", ") + " may use it"
	}
	return "no package owns this module; give it an owner in tidy_test.go"
}

func TestCoreReadsNoClock(t *testing.T) {
	for _, s := range sources(t) {
		_, layer, _ := placed(s.dir)
		if s.dir == "." || s.test || layer > 3 {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && impureCalls[sel.Sel.Name] {
				t.Errorf("%s: time.%s in the core; time is a parameter", s.fset.Position(n.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}

func TestFunctionLength(t *testing.T) {
	for _, s := range sources(t) {
		most := 70
		if s.test {
			most = 60
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			from, to := s.fset.Position(fn.Body.Lbrace).Line, s.fset.Position(fn.Body.Rbrace).Line
			if n := to - from - 1; n > most {
				t.Errorf("%s:%d: %s has %d lines, at most %d", s.path, from, fn.Name.Name, n, most)
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	comments, files := map[string]int{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		files[s.dir] = true
		if s.file.Doc != nil {
			comments[s.dir]++
		}
	}
	for dir := range files {
		if n := comments[dir]; n != 1 {
			t.Errorf("%s: %d package comments, want one", dir, n)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			undocumented(d, func(pos token.Pos, name string) {
				t.Errorf("%s: %s has no doc comment", s.fset.Position(pos), name)
			})
		}
	}
}

func undocumented(d ast.Decl, report func(token.Pos, string)) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && receiverExported(d) {
			report(d.Pos(), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil {
					report(spec.Pos(), spec.Name.Name)
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
						report(name.Pos(), name.Name)
					}
				}
			}
		}
	}
}

// receiverExported reports whether a method's receiver can be seen from outside.
func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

func TestMainsOnlyWire(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || !strings.HasPrefix(s.dir, "cmd/") {
			continue
		}
		if n := s.fset.Position(s.file.End()).Line; n > 80 && path.Base(s.path) == "main.go" {
			t.Errorf("%s has %d lines, at most 80: mains only wire", s.path, n)
		}
	}
}

// TestProgramsLinkOnlyWhatTheyUse keeps each program free of the technologies
// it has no use for, so that the ones at the terminal start at once.
func TestProgramsLinkOnlyWhatTheyUse(t *testing.T) {
	raft, bolt, containers, nvml := "github.com/hashicorp/raft", "go.etcd.io/bbolt", "github.com/containerd/", "github.com/NVIDIA/"
	cobra, connect := "github.com/spf13/cobra", "connectrpc.com/connect"
	parquet := "github.com/parquet-go/"
	for program, banned := range map[string][]string{
		"gsubmit": {raft, bolt, containers, nvml, parquet, "net\n", "crypto/rand\n", "log/slog\n", "encoding/json\n", "google.golang.org/", "github.com/pelletier/"}, // ADR 10
		"gqueue":  {raft, bolt, containers, nvml, parquet},
		"gcancel": {raft, bolt, containers, nvml, parquet},
		"gslurm":  {raft, bolt, containers, nvml},
		"gctl":    {raft, bolt, containers, nvml},
		"grun":    {raft, bolt, containers, nvml, parquet, cobra},
		"gsim":    {containers, nvml}, // it reads the backups that controllers write
		"gctld":   {containers, nvml},
		"gnoded":  {raft + "\n", raft + "-", nvml},
		"gauthd":  {raft, bolt, containers, nvml},
		"ginit":   {raft, bolt, containers, nvml, cobra, connect},
		"gshim":   {raft, bolt, containers, nvml, cobra, connect, "google.golang.org/", "net\n"},
		"gstepd":  {raft, bolt, containers, nvml, cobra, connect, "google.golang.org/"},
		"gshimd":  {raft, bolt, nvml, cobra, connect},
	} {
		list := exec.Command("go", "list", "-deps", "./cmd/"+program)
		list.Env = append(list.Environ(), "CGO_ENABLED=1") // else nothing imports NVML
		out, err := list.Output()
		if err != nil {
			t.Errorf("go list ./cmd/%s: %v", program, err)
			continue
		}
		for _, bad := range banned {
			if strings.Contains(string(out), "\n"+bad) {
				t.Errorf("%s links %s", program, strings.TrimSpace(bad))
			}
		}
	}
}

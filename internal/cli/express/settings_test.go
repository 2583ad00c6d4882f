package express

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/config"
)

// compareReaders compares what is read here with what package config reads, if anything is.
func compareReaders(t *testing.T) (read bool) {
	t.Helper()
	var s settings
	if err := s.load(); err != nil {
		return false
	}
	cfg, err := config.LoadClient("")
	if err != nil || s.socket != cfg.AuthSocket || s.output != cfg.Output {
		t.Errorf("%+v; in truth %q, %q, %v", s, cfg.AuthSocket, cfg.Output, err)
	}
	return true
}

// written returns a configuration in a folder of its own.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "client.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(clientEnv, file)
	return file
}

func TestSettings(t *testing.T) {
	shipped, err := os.ReadFile("../../../etc/client.toml")
	if err != nil {
		t.Fatal(err)
	}
	said := strings.ReplaceAll(strings.ReplaceAll(string(shipped), "\n#", "\n"), "\n ", "\n# ")
	for text, plain := range map[string]bool{
		"": true, string(shipped): true, said: true, "auth_socket=\"/a # b\" # \u00e9\n": true,
		"output = \"json\"\ncontrollers = [ # all\n\t\"ctl[1-3]\",\n\"a:7117\", ]": true,
		"timeout = \"5m\"\ncolor = \"never\"\nca_file = \"/ca\"":                   true,
		// Invalid, or not understood here.
		"output = \"yaml\"": false, "output = json": false, "output = \"table\"\noutput = \"json\"": false, "colour = \"auto\"": false,
		"controllers = []": false, "controllers = [\"0.0.0.0\"]": false, "controllers = [\"a:0\"]": false, "controllers = \"a\"": false,
		"controllers = [\"::1\"]": false, "controllers = [\"a\" \"b\"]": false, "auth_socket = \"s\"": false, "timeout = \"1ms\"": false,
		"timeout = \"1d\"": false, "ca_file = '/ca'": false, "ca_file = \"\"\"/ca\"\"\"": false, "ca_file = \"/\\u0041\"": false,
		"ca_file = \"/ca\" output = \"json\"": false, "[x]": false, "\xff": false, "#\x00": false, "output": false, "output = \"": false,
	} {
		written(t, text)
		if got := compareReaders(t); got != plain {
			t.Errorf("%q: read %v", text, got)
		}
	}
}

// TestDropIns checks that later files override earlier ones.
func TestDropIns(t *testing.T) {
	dir := strings.TrimSuffix(written(t, "output = \"json\""), ".toml") + ".d"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range [][2]string{{"b.toml", "output = \"table\"\nauth_socket = \"/b\""}, {"a.toml", "auth_socket = \"/a\""}, {".c.toml", "?"}, {"d", "?"}} {
		if err := os.WriteFile(filepath.Join(dir, f[0]), []byte(f[1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var s settings
	if err := s.load(); err != nil || s.socket != "/b" || s.output != "table" || !compareReaders(t) {
		t.Errorf("%+v, %v", s, err)
	}
	if clientEnv != config.ClientEnv || clientPath != config.ClientPath || authSocket != config.AuthSocket {
		t.Error("the places are not those of package config")
	}
}

// TestSettingsInsideAJob checks that the socket of the task takes precedence over that of a login
// node.
func TestSettingsInsideAJob(t *testing.T) {
	written(t, "auth_socket = \"/a\"")
	for socket, plain := range map[string]bool{"/dev/greylag/job/socket": true, "socket": false, "/" + strings.Repeat("x", 200): false} {
		t.Setenv(config.SocketEnv, socket)
		var s settings
		cfg, err := config.LoadClient("")
		if got := s.load(); (got == nil) != plain || (err == nil) != plain || plain && (s.socket != socket || cfg.JobSocket != socket) {
			t.Errorf("%q: %+v, %v; package config: %q, %v", socket, s, got, cfg.JobSocket, err)
		}
	}
}

// FuzzSettings checks that what is read here is read by package config alike.
func FuzzSettings(f *testing.F) {
	f.Add("controllers = [\"a\", \"b:1\"] # c\noutput = \"json\"\ntimeout = \"1m\"")
	f.Add("auth_socket = \"/run/s\"\ncolor = \"auto\"\nca_file = \"/ca\"\ncontrollers = [\n\"ctl[1-3]:7117\",\n]\n")
	f.Fuzz(func(t *testing.T, text string) {
		written(t, text)
		compareReaders(t)
	})
}

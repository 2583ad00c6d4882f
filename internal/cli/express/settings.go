package express

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/greylag/greylag/internal/hostlist"
)

// This file repeats package config, which is not linked: with it come net, TOML and reflection, a
// tenth of the time of a submission.
const (
	clientEnv, clientPath = "GREYLAG_CONFIG", "/etc/greylag/client.toml"
	socketEnv             = "GREYLAG_SOCKET"
	authSocket            = "/run/greylag/auth.sock"
	maxFile, maxSocket    = 256 << 10, 107
)

// settings is the part of client.toml that a plain submission needs.
type settings struct{ socket, output string }

// errNotPlain marks a configuration for the full program: one with an error, or with syntax that
// this package does not know.
var errNotPlain = errors.New("not a plain configuration")

// load reads client.toml and its drop-ins if they consist of lines of KEY = "TEXT", or ["TEXT",
// ...], without errors.
func (s *settings) load() error {
	*s = settings{socket: authSocket, output: "table"}
	files, err := filesOf()
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if len(text) > maxFile || !utf8.Valid(text) || slices.ContainsFunc(text, isControl) {
			return errNotPlain
		}
		if err := s.read(string(text)); err != nil {
			return err
		}
	}
	if socket := os.Getenv(socketEnv); socket != "" { // inside a job
		s.socket = socket
		if !filepath.IsAbs(socket) || len(socket) > maxSocket {
			return errNotPlain
		}
	}
	return nil
}

func isControl(c byte) bool { return c < ' ' && c != '\n' && c != '\t' || c == 0x7f }

// filesOf returns the file and its drop-ins in order of precedence.
func filesOf() ([]string, error) {
	path, optional := os.Getenv(clientEnv), false
	if path == "" {
		path, optional = clientPath, true
	}
	var files []string
	switch _, err := os.Stat(path); {
	case err == nil:
		files = append(files, path)
	case !optional || !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	dir := strings.TrimSuffix(path, ".toml") + ".d"
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".toml") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// read applies the content of one file.
func (s *settings) read(text string) error {
	var seen []string
	for text = skip(text, "\n"); text != ""; text = skip(text, "\n") {
		end := strings.IndexFunc(text, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
		if end <= 0 || slices.Contains(seen, text[:end]) {
			return errNotPlain
		}
		key, rest := text[:end], skip(text[end:], "")
		if !strings.HasPrefix(rest, "=") {
			return errNotPlain
		}
		values, isList, rest, ok := value(skip(rest[1:], ""))
		if !ok || !s.set(key, values, isList) {
			return errNotPlain
		}
		if text = skip(rest, ""); text != "" && text[0] != '\n' {
			return errNotPlain
		}
		seen = append(seen, key)
	}
	return nil
}

// skip skips blanks, comments, and the characters in more.
func skip(text, more string) string {
	for {
		text = strings.TrimLeft(text, " \t"+more)
		if !strings.HasPrefix(text, "#") {
			return text
		}
		end := strings.IndexByte(text, '\n')
		if end < 0 {
			return ""
		}
		text = text[end:]
	}
}

// value reads a text or a list of texts, and returns what follows.
func value(text string) (values []string, isList bool, rest string, ok bool) {
	if !strings.HasPrefix(text, "[") {
		one, rest, ok := quoted(text)
		return []string{one}, false, rest, ok
	}
	for text = skip(text[1:], "\n"); !strings.HasPrefix(text, "]"); {
		one, rest, ok := quoted(text)
		if !ok {
			return nil, true, "", false
		}
		values, text = append(values, one), skip(rest, "\n")
		if after, more := strings.CutPrefix(text, ","); more {
			text = skip(after, "\n")
		} else if !strings.HasPrefix(text, "]") {
			return nil, true, "", false
		}
	}
	return values, true, text[1:], true
}

// quoted reads a quoted text without escapes.
func quoted(text string) (inner, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", false
	}
	inner, rest, ok = strings.Cut(text[1:], `"`)
	return inner, rest, ok && !strings.ContainsAny(inner, "\\\n") && !(inner == "" && strings.HasPrefix(rest, `"`))
}

// set applies one setting, and reports whether it is certainly valid.
func (s *settings) set(key string, values []string, isList bool) bool {
	if isList != (key == "controllers") {
		return false
	}
	switch key {
	case "controllers":
		return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return !reachable(v) })
	case "ca_file":
		return filepath.IsAbs(values[0])
	case "auth_socket":
		s.socket = values[0]
		return filepath.IsAbs(s.socket) && len(s.socket) <= maxSocket
	case "output":
		s.output = values[0]
		return s.output == "table" || s.output == "json"
	case "color":
		return values[0] == "auto" || values[0] == "always" || values[0] == "never"
	case "timeout":
		d, err := time.ParseDuration(values[0])
		return err == nil && d >= time.Second
	}
	return false
}

// reachable reports whether a text names controllers: HOST or HOST:PORT, or several such as
// ctl[1-3], and no IPv6 address.
func reachable(text string) bool {
	names, err := hostlist.Expand(text)
	return err == nil && len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool {
		host, port, given := strings.Cut(name, ":")
		n, err := strconv.ParseUint(port, 10, 16)
		return host == "" || host == "0.0.0.0" || given && (err != nil || n == 0)
	})
}

package image

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestCredentials(t *testing.T) {
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	c, err := ParseCredentials([]byte(`{"auths": {
		"https://index.docker.io/v1/": {"auth": "` + encode("hub:a:b") + `"},
		"registry.example.org": {"auth": "` + encode("all:1") + `"},
		"registry.example.org/team": {"auth": "` + encode("team:2") + `"},
		"registry.example.org/team/private": {"username": "one", "password": "3"},
		"token.example.org:5000": {"auth": "` + encode("<token>:") + `", "identitytoken": "tok"},
		"empty.example.org": {}
	}, "credsStore": "secretservice"}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Login{
		"docker.io/library/busybox:1.36":             {"hub", "a:b"},
		"registry.example.org/x":                     {"all", "1"},
		"registry.example.org/teams/x":               {"all", "1"},
		"registry.example.org/team/x:latest":         {"team", "2"},
		"registry.example.org/team/private@sha256:0": {"one", "3"},
		"registry.example.org/team/private/x":        {"one", "3"},
		"token.example.org:5000/x":                   {"", "tok"},
		"token.example.org:5000":                     {"", "tok"},
		"registry-1.docker.io":                       {"hub", "a:b"},
		"empty.example.org/x":                        {},
		"example.org/registry.example.org/x":         {},
		"token.example.org/x":                        {},
	} {
		if got, ok := c.For(name); got != want || ok != (want != Login{}) {
			t.Errorf("%s: %+v %v, want %+v", name, got, ok, want)
		}
	}
}

func TestCredentialsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "{", `{"auths": []}`, `{"auths": {"x": {"auth": "secret!"}}}`, `"secret"`} {
		_, err := ParseCredentials([]byte(text))
		if !errors.Is(err, ErrCredentials) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ParseCredentials([]byte(`{"credHelpers": {"x": "y"}}`)); err != nil {
		t.Error(err)
	}
}

func FuzzCredentials(f *testing.F) {
	f.Add([]byte(`{"auths": {"registry.example.org/team": {"auth": "YTpi"}}}`), "registry.example.org/team/x:1")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		c, err := ParseCredentials(data)
		if err != nil {
			return
		}
		if login, ok := c.For(name); ok && login == (Login{}) {
			t.Error("an empty login")
		}
	})
}

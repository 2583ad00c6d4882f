package cluster

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the staged files of a job, in number and in bytes of their texts.
const (
	maxStaging     = 64
	maxStagingText = 16 << 10
)

// ErrStaging is wrapped by every error of [ParseStaging] and [Staging.Check].
var ErrStaging = errors.New("invalid staging")

// ParseStaging reads PATH=URL, the value of --stage-in and --stage-out.
func ParseStaging(text string) (Staging, error) {
	where, source, found := strings.Cut(text, "=")
	if !found || strings.Contains(where, "://") {
		return Staging{}, fmt.Errorf("%w: %.200q: want PATH=URL", ErrStaging, text)
	}
	s := Staging{Path: where, URL: source}
	if strings.HasSuffix(where, "/") && where != "/" {
		if !s.Directory() {
			return Staging{}, fmt.Errorf("%w: %.200q: the path is a directory, and the URL is not: end both with a slash, or none", ErrStaging, text)
		}
		s.Path = strings.TrimRight(where, "/")
	}
	return s, s.Check()
}

// String is the value of the option.
func (s Staging) String() string { return s.Path + "=" + s.URL }

// Directory reports whether a directory is copied.
func (s Staging) Directory() bool { return strings.HasSuffix(s.URL, "/") }

// Check returns an error for a path or a URL that cannot be copied.
func (s Staging) Check() error {
	bad := func(why string) error { return fmt.Errorf("%w: %.200q: %s", ErrStaging, s.String(), why) }
	for _, text := range []string{s.Path, s.URL} {
		if text == "" || len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, UnsafeToDisplay) {
			return bad(fmt.Sprintf("path and URL must have 1 to %d bytes without control characters", maxText))
		}
	}
	switch {
	case strings.HasPrefix(s.Path, "/"):
		return bad("the path must be relative to the job's working directory")
	case path.Clean("/"+s.Path) != "/"+s.Path && s.Path != "." || strings.Contains(s.Path, "="):
		return bad(`the path must have no "=", no empty part, no ".." and no "."`)
	case s.Path == "." && !s.Directory():
		return bad("the working directory needs a URL that ends with a slash")
	}
	return s.checkURL(bad)
}

// checkURL checks the URL of a staged file or directory.
func (s Staging) checkURL(bad func(string) error) error {
	scheme, rest, _ := strings.Cut(s.URL, "://")
	authority, where, _ := strings.Cut(rest, "/")
	where, query, asks := strings.Cut(where, "?")
	user, host, named := strings.Cut(authority, "@")
	if !named {
		user, host = "", authority
	}
	parts, web := strings.Split(where, "/"), scheme == "http" || scheme == "https"
	switch {
	case !web && scheme != "s3" && scheme != "rsync":
		return bad("the URL must begin with s3://, https://, http:// or rsync://")
	case named && (scheme != "rsync" || user == "" || !isHost(user) || strings.Contains(user, ":")):
		return bad("the URL must have no password, and a user only with rsync: other users can read it")
	case !isHost(host):
		return bad("want s3://BUCKET/KEY, https://HOST/PATH, http://HOST/PATH or rsync://HOST/MODULE/PATH")
	case strings.Contains(where+query, "#") || asks && !web:
		return bad("the URL must have no fragment, and a query only with https or http")
	case where == "":
		return bad("the URL has no path")
	case slices.Contains(parts, "..") || slices.Contains(parts, "."):
		return bad(`the path of the URL must have no ".." and no "."`)
	case web && (s.Directory() || strings.HasSuffix(where, "/")):
		return bad("a directory can be copied with s3 or rsync only")
	case scheme == "s3" && !isBucket(host):
		return bad("the bucket must have 3 to 63 lower-case letters, digits, dots and hyphens")
	}
	return nil
}

// isHost reports whether a word has only the characters of a host with its port, or of a user.
func isHost(word string) bool {
	return word != "" && !strings.HasPrefix(word, "-") && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:[]") == ""
}

// isBucket reports whether a word can be the name of an S3 bucket.
func isBucket(word string) bool {
	return len(word) >= 3 && len(word) <= 63 && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// checkStaging checks the files that are copied before and after the script.
func (s *JobSpec) checkStaging(fault func(string, ...any)) {
	if s.Elastic.On() && len(s.StageOut) > 0 {
		fault("stage-out: the first node of an elastic job may leave it: copy the files in the script")
	}
	size := 0
	for _, list := range []struct {
		option string
		staged []Staging
	}{{"stage-in", s.StageIn}, {"stage-out", s.StageOut}} {
		if len(list.staged) > maxStaging {
			fault("%s: %d files, at most %d", list.option, len(list.staged), maxStaging)
			return
		}
		for i, x := range list.staged {
			if err := x.Check(); err != nil {
				fault("%s: %v", list.option, err)
			}
			size += len(x.Path) + len(x.URL)
			if slices.ContainsFunc(list.staged[:i], func(o Staging) bool {
				return list.option == "stage-in" && o.Path == x.Path || list.option == "stage-out" && o.URL == x.URL
			}) {
				fault("%s: %.200q is copied to a place that another entry names", list.option, x.String())
			}
		}
	}
	if size > maxStagingText {
		fault("the paths and URLs to stage have %d bytes, at most %d", size, maxStagingText)
	}
}

// CopiesOut reports whether the files of StageOut are copied from the first node at the end of the attempt, as known so
// far: its script has started, and it is neither cancelled nor preempted, nor runs again.
func (j *Job) CopiesOut() bool {
	if len(j.Spec.StageOut) == 0 || j.State != Completing || j.Outcome == Cancelled || j.Outcome == Preempted || j.Returns || j.Tasks.Len() == 0 {
		return false
	}
	t := j.Tasks.At(0)
	return t.Started != 0 && t.Cause != LaunchFailed
}

// CredentialsSecret is the name of the secret of a job that is a file of S3 credentials.
const CredentialsSecret = "aws-credentials"

// StagingCredentials names the secret with S3 credentials that copies of the files of the jobs of an account and its
// descendants use. The jobs do not get it.
type StagingCredentials struct {
	Account string
	User    string // whose secret it is
	Secret  string
}

// maxStagingCredentials limits the entries of a policy.
const maxStagingCredentials = 1000

// StagingCredentialsOf returns the entry of an account.
func (p *Policy) StagingCredentialsOf(account string) (StagingCredentials, bool) {
	i := slices.IndexFunc(p.StagingCredentials, func(x StagingCredentials) bool { return x.Account == account })
	if i < 0 {
		return StagingCredentials{}, false
	}
	return p.StagingCredentials[i], true
}

// checkStagingCredentials reports faults of the entries.
func (p *Policy) checkStagingCredentials(fault faultReporter) {
	if n := len(p.StagingCredentials); n > maxStagingCredentials {
		fault("staging_credentials", "%d entries, at most %d", n, maxStagingCredentials)
		return
	}
	seen := map[string]bool{}
	for i, x := range p.StagingCredentials {
		at := element("staging_credentials", i)
		checkWord(fault.at(at+".account"), "account", x.Account)
		checkWord(fault.at(at+".user"), "user", x.User)
		if seen[x.Account] {
			fault(at+".account", "account %q is listed twice", x.Account)
		}
		seen[x.Account] = true
		if !ValidObjectName(x.Secret) {
			fault(at+".secret", "%.64q cannot name a secret", x.Secret)
		}
	}
}

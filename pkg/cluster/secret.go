package cluster

import (
	"slices"
	"strings"
)

// MaxObjectName is the length of the longest name of a recurring job or a secret, in bytes.
const MaxObjectName = 64

// MaxSecret is the size of the largest value of a secret, in bytes.
const MaxSecret = 64 << 10

// maxSecrets is the maximum number of secrets of a job.
const maxSecrets = 64

// ValidObjectName reports whether a text can name a recurring job or a secret of a user. It can name a file
// too.
func ValidObjectName(name string) bool {
	if name == "" || len(name) > MaxObjectName || strings.IndexByte("._-", name[0]) >= 0 {
		return false
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r) {
			return false
		}
	}
	return true
}

// checkSecrets checks the names of secrets: valid and unique.
func (s *JobSpec) checkSecrets(fault func(string, ...any)) {
	if len(s.Secrets) > maxSecrets {
		fault("%d secrets, at most %d", len(s.Secrets), maxSecrets)
		return
	}
	for i, name := range s.Secrets {
		switch {
		case !ValidObjectName(name):
			fault("%.*q cannot name a secret", MaxObjectName, name)
		case slices.Contains(s.Secrets[:i], name):
			fault("secret %q is named twice", name)
		}
	}
}

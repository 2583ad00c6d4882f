package accounts

import "testing"

// TestNamesNothing checks that account=$A in a script whose A is empty does not mean all accounts.
func TestNamesNothing(t *testing.T) {
	for _, args := range [][]string{
		{"user", "bob", "account="}, {"user", "where", "name=bob", "accounts=,"}, {"physics", "user="}, {"physics", "user=bob", "partition="},
	} {
		if w, err := readAccountWords("delete", args); err == nil {
			t.Errorf("%q is accounts %q, users %q, partitions %q", args, w.names, w.users, w.parts)
		}
	}
}

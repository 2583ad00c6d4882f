package clusterdoc

import (
	"reflect"
	"strings"
	"testing"
)

const someAccounts = `[[account]]
name = 'uni'
description = 'the "whole" of it'
shares = 40
limits = ['GrpTRES=gpu=64', 'GrpTRES=mem=1T', 'MaxWall=2-00:00:00']

[[account]]
name = 'physics'
parent = 'uni'
shares = 0
coordinators = ['ada', 'bob']
qos = ['batch', 'standard']
default_qos = 'batch'

[[user]]
name = 'ada'
account = 'physics'
default = true
limits = ['MaxJobs=3']
`

func TestAccountsRoundTrip(t *testing.T) {
	all, users, err := ReadAccounts("a.toml", []byte(someAccounts))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || len(users) != 1 || all[0].Shares != 40 || all[1].Shares != 0 || users[0].Shares != 1 || all[0].Limits[1].Value != 1<<20 {
		t.Errorf("%+v %+v", all, users)
	}
	text, err := WriteAccounts(all, users)
	if err != nil || string(text) != someAccounts {
		t.Errorf("%v\n%s\nwant\n%s", err, text, someAccounts)
	}
}

func TestAccountFaults(t *testing.T) {
	text := `[[account]]
name = ''
share = 3
[[account]]
name = 'a'
shares = 'many'
limits = ['GrpGPU=3', 'MaxJobs', 'GrpTRES=gpus=3', 'MaxJobsPerUser=3']
[[user]]
name = 'u'
account = 'a'
limits = 3
`
	_, _, err := ReadAccounts("a.toml", []byte(text))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"a.toml:3: account[0].share: unknown key; did you mean shares?", "one account has no name",
		"a.toml:6: account[1].shares: want an integer", `not a limit: "GrpGPU"`, `MaxJobs has no value`,
		`"gpus" is no resource`, "MaxJobsPerUser is a limit of a qos", "a.toml:11: user[0].limits: expected a list",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add(someAccounts)
	f.Fuzz(func(t *testing.T, text string) {
		all, users, err := ReadAccounts("f", []byte(text))
		if err != nil {
			return
		}
		again, err := WriteAccounts(all, users)
		if err != nil {
			t.Fatal(err)
		}
		all2, users2, err := ReadAccounts("f", again)
		if err != nil || !reflect.DeepEqual(all, all2) || !reflect.DeepEqual(users, users2) {
			t.Fatalf("%v\n%s", err, again)
		}
	})
}

package cluster

import "testing"

func TestMailTypes(t *testing.T) {
	for list, want := range map[string]string{
		"END": "END", "end,Fail": "END,FAIL", "ALL": "BEGIN,END,FAIL,REQUEUE,INVALID_DEPEND,WARNING", "ALL,TIME_LIMIT_80,ARRAY_TASKS": "BEGIN,END,FAIL,REQUEUE,INVALID_DEPEND,TIME_LIMIT_80,ARRAY_TASKS,WARNING",
		"NONE": "", "END,NONE,FAIL": "FAIL", "TIME_LIMIT,TIME_LIMIT_90": "TIME_LIMIT,TIME_LIMIT_90",
	} {
		m, err := ParseMailTypes(list)
		if err != nil || m.String() != want {
			t.Errorf("%s: %s, %v, want %s", list, m, err, want)
		}
		if n := len(m.Each()); (n == 0) != (want == "") {
			t.Errorf("%s: %d types", list, n)
		}
	}
	for _, bad := range []string{"", "ENDE", "END,", "STAGE_OUT"} {
		if m, err := ParseMailTypes(bad); err == nil {
			t.Errorf("%q: %s", bad, m)
		}
	}
}

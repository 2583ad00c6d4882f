package parquet

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/greylag/greylag/internal/report"
)

// TestReadBack: what is written is read by the library's reader with names, types and
// values, and twice the same.
func TestReadBack(t *testing.T) {
	table := &report.Table{Name: "usage", Columns: []report.Column{{Name: "user", Digits: report.Text}, {Name: "jobs"}, {Name: "gpu_hours", Digits: 3}}}
	for i := range int64(3000) {
		table.Rows = append(table.Rows, []report.Value{report.Word(fmt.Sprint("user", i%7)), report.Number(i), report.Number(i * 1500)})
	}
	table.Rows[5][0], table.Rows[5][2] = report.None(), report.None()
	data, err := Encode(table)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Encode(table)
	if err != nil || !bytes.Equal(data, again) {
		t.Fatal("the same table gives other bytes", err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	const want = `message {
	optional binary user (STRING);
	optional int64 jobs (INT(64,true));
	optional int64 gpu_hours (DECIMAL(18,3));
}`
	if got := f.Schema().String(); got != want {
		t.Errorf("the schema is\n%s\nwant\n%s", got, want)
	}
	rows := make([]parquet.Row, 4000)
	n, _ := parquet.NewReader(f).ReadRows(rows)
	if n != 3000 || rows[2999][0].String() != "user3" || rows[2999][1].Int64() != 2999 || rows[2999][2].Int64() != 2999*1500 || !rows[5][0].IsNull() || !rows[5][2].IsNull() {
		t.Errorf("%d rows, the last is %v", n, rows[2999])
	}
}

// TestNoRows: an empty report is a file that can be read.
func TestNoRows(t *testing.T) {
	data, err := Encode(&report.Table{Columns: []report.Column{{Name: "user", Digits: report.Text}}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil || f.NumRows() != 0 {
		t.Fatal(f, err)
	}
}

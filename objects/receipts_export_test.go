package objects

import (
	"context"
	"time"
)

// ReceiptsMost is the constant.
const ReceiptsMost = receiptsMost

// NoteReceipts notes receipts as those of one removal.
func (s *Store) NoteReceipts(texts ...string) { s.receipts.note(texts) }

// DropReceipts drops receipts at a time.
func (s *Store) DropReceipts(ctx context.Context, now time.Time) { s.receipts.drop(ctx, now) }

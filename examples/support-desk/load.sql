-- The help centre and solved tickets of a support desk: a hosted service for time sheets and invoices, invented for this
-- example. Loading it twice does no harm.
\set ON_ERROR_STOP on
SET client_min_messages = warning;

BEGIN;

CREATE TABLE IF NOT EXISTS articles (
  id int PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('guide', 'ticket')),
  product text NOT NULL,
  title text NOT NULL,
  body text NOT NULL,
  link text GENERATED ALWAYS AS ('https://help.tidewater.example/' || id) STORED
);
COMMENT ON TABLE articles IS 'Help centre and solved tickets of a support desk';

INSERT INTO articles (id, kind, product, title, body) VALUES
(101, 'guide', 'accounts', 'Resetting your password',
$$Open the sign-in page and choose "Forgot password". We send a link to the address of your account. The link works once and for 30 minutes; asking again makes the older link useless.

If no message arrives within five minutes, look into the spam folder and ask your administrator whether the workspace uses single sign-on. A workspace with single sign-on has no passwords of its own: change it where you sign in to everything else.

After five wrong passwords the account is locked for 15 minutes. An administrator can unlock it at once under Settings → People.$$),
(102, 'guide', 'accounts', 'Two-factor authentication',
$$Two-factor authentication asks for a six-digit code from an authenticator app after your password. Turn it on under Profile → Security, scan the picture with the app, and type the first code.

Print the ten recovery codes. Each works once in place of a code from the app. When the phone is lost and no recovery code is left, an administrator of the workspace can switch two-factor authentication off for you under Settings → People; we cannot do it for them.

Administrators may require two-factor authentication for everybody. Members then have seven days to set it up before they are asked at every sign-in.$$),
(103, 'guide', 'accounts', 'Single sign-on with SAML',
$$The Business plan signs people in through your identity provider by SAML 2.0. Enter the provider's metadata address under Settings → Single sign-on, copy our entity ID and reply address to the provider, and test with one account before you require it.

People are matched by e-mail address. Someone who signs in for the first time becomes a member without any project; switch this off with "Only invited people".

When the provider's certificate is renewed, upload the new one before the old one expires. Keep one administrator with a password as a way in: an administrator marked as "emergency access" may always sign in with password and two-factor code.$$),
(104, 'guide', 'accounts', 'Roles and what they may do',
$$There are four roles. A member records time and sees their own entries. A project lead also sees and approves the time of their projects. An accountant sees all time and makes invoices, but changes no settings. An administrator may do everything, and is the only one who invites people or deletes data.

A person has one role in a workspace, and may lead any number of projects. The last administrator cannot be removed or given another role: appoint a second one first.$$),
(105, 'guide', 'accounts', 'Deleting a workspace',
$$Only the workspace's owner can delete it, under Settings → Workspace → Delete. Type the workspace's name to confirm. Everything becomes unreachable at once and is erased for good after 30 days; until then the owner can restore it with the link in the confirmation message.

Download your invoices first: tax law in many countries asks you to keep them for years, and we cannot bring them back after the 30 days. The subscription ends with the current month, and started months are not refunded.$$),
(106, 'guide', 'time', 'Recording time',
$$Press Start to run a timer, or type hours into the week sheet. A timer that has run for more than 12 hours stops by itself and is marked for you to check. Only one timer runs at a time: starting one stops the other.

Entries can be moved to another project until they are approved. Approved entries are locked; the project lead can open them again as long as they are not on an invoice.$$),
(107, 'guide', 'time', 'Rounding',
$$Rounding is set per workspace and may be changed per client: none, or to 5, 6, 10, 15 or 30 minutes, up, down or to the nearest. It is applied to each entry when an invoice is made, never to what you recorded, so reports by default show the unrounded hours. Choose "Rounded" in a report's options to see what will be invoiced.$$),
(108, 'guide', 'time', 'Approving time sheets',
$$On Monday morning, 06:00 in the workspace's time zone, the week that ended is submitted. Project leads find it under Approvals. Approve a whole week with one click or open it to reject single entries with a comment; the member gets a message and can correct and submit again.

A week that nobody approves within 14 days is reported to the administrators. Approval is off by default; turn it on under Settings → Time.$$),
(109, 'guide', 'time', 'Working offline on the phone',
$$The phone app keeps up to 14 days of entries while there is no connection, and sends them when there is one. The cloud symbol on an entry shows that it has not been sent yet.

If the same entry was changed on the phone and in the browser meanwhile, the later change wins and the other one is kept in the entry's history. Do not sign out or remove the app while entries wait: what was not sent is lost.$$),
(110, 'guide', 'time', 'Time zones and summer time',
$$Entries are stored with the time zone they were recorded in and shown in the time zone of your profile. Travelling does not change what was recorded. An entry that spans the change to summer time counts the hours that really passed, so a night shift on that date is one hour shorter.

The day a report assigns an entry to is decided by the workspace's time zone, so that everybody's reports add up.$$),
(111, 'guide', 'invoices', 'Making an invoice from hours',
$$Choose the client and the period, and every approved, billable hour that is not yet on an invoice is proposed. Group the lines by project, task or person. The rate is that of the task, else the project, else the person, else the client.

A draft can be changed freely. Finalising gives the invoice its number and locks it. To correct a finalised invoice, make a credit note, which opens the hours again, and then a new invoice.$$),
(112, 'guide', 'invoices', 'Invoice numbers',
$$Numbers are given when an invoice is finalised, without gaps, in the order of finalising. The pattern is set under Settings → Invoices: for example {year}-{number:4} gives 2026-0042. With {year} in the pattern counting begins at 1 each January.

The next number may be raised, to carry on from another program, but never lowered. Drafts have no number. A deleted draft therefore leaves no gap.$$),
(113, 'guide', 'invoices', 'VAT and the reverse charge',
$$Each client has a tax rule: domestic, European Union with VAT number, or outside the European Union. For a client with a VAT number in another member state the invoice carries no VAT and the sentence "Reverse charge" with both numbers. We check VAT numbers when they are entered and again when an invoice is finalised; if the register does not answer, the invoice is finalised with a warning and the check is repeated during the night.

Rates are kept with the date from which they hold. The date of supply on the invoice decides which one is used.$$),
(114, 'guide', 'invoices', 'Reminders for unpaid invoices',
$$Reminders are sent 7, 14 and 30 days after the due date unless you choose other days. An invoice that is paid in part is reminded of the remainder. Stop reminders for one invoice with "Pause reminders", for a client in the client's settings.

Reminders are never sent on weekends: they wait for Monday. The text can be written per language; the client's language decides which one is used.$$),
(115, 'guide', 'invoices', 'Online payment by card',
$$Connect a payment account under Settings → Payments. Invoices then carry a "Pay now" button. Payments are marked as such within a minute, and the fee of the payment company is recorded as an expense if you wish.

Refunds are made in the payment company's own dashboard; we notice them and open the invoice again. Disputed payments mark the invoice as disputed and stop its reminders.$$),
(116, 'guide', 'invoices', 'Electronic invoices for public authorities',
$$For clients in the public sector choose the format XRechnung or Peppol BIS 3 in the client's settings. The buyer reference, in Germany the Leitweg-ID, is required: without it the invoice cannot be finalised. The XML file is what counts in law; the PDF is a picture of it for people.

Sending through the Peppol network is part of the Business plan. On other plans download the XML and upload it to the authority's portal.$$),
(117, 'guide', 'data', 'Exporting everything',
$$Under Settings → Data an administrator can export the whole workspace: a zip with one CSV file a table, in UTF-8 with a header line and ISO dates, and all invoices as PDF. Large workspaces take up to an hour; a message with a link comes when it is ready, and the link works for 48 hours.

Exports can be made once an hour. For regular copies use the API or the nightly export to a bucket of your own on the Business plan.$$),
(118, 'guide', 'data', 'Importing from a spreadsheet',
$$Time entries can be imported from CSV with the columns date, person, project, task, hours and note. The first line names the columns, in any order. Dates are year-month-day; hours are decimal with a point or hours:minutes.

The import is checked as a whole before anything is written: either every line is imported or none. Up to 20,000 lines fit in one file. Lines that exist already, with the same date, person, task and note, are skipped and counted.$$),
(119, 'guide', 'data', 'How long data is kept',
$$Time entries and invoices are kept as long as the workspace exists. The history of changes is kept for 24 months, sign-in records for 90 days, and exported files for 48 hours. Backups are kept for 35 days and are encrypted; what was deleted is gone from them after that time.

A former member's name can be replaced by "former member" while the hours stay, under Settings → People → Anonymise. This cannot be undone.$$),
(120, 'guide', 'api', 'API keys',
$$Make an API key under Profile → API. A key may do what you may do; a read-only key can only read. It is shown once. Send it in the header "Authorization: Bearer". Keys that were not used for 12 months are switched off, and you are told two weeks before.

An administrator sees who has keys and when they were last used, and can withdraw each of them. Keys in a public code repository are found by a scanner and switched off at once.$$),
(121, 'guide', 'api', 'Rate limits',
$$The API allows 120 requests a minute for each key, in bursts of 20. A request above that is answered with status 429 and the header Retry-After, in seconds. Wait that long and repeat; repeated requests without waiting lengthen the pause up to five minutes.

Lists are read in pages of up to 500 items. Ask for changes with "updated_since" rather than reading everything again: it is cheaper for both of us. The Business plan allows 600 requests a minute.$$),
(122, 'guide', 'api', 'Webhooks',
$$A webhook tells your server that something happened: an entry approved, an invoice finalised or paid. Each message is signed with HMAC-SHA256 over the raw body in the header X-Tidewater-Signature; compare it before you trust the content.

Answer with any 2xx status within ten seconds. Else we repeat after 1, 5, 30 minutes and then every 3 hours for two days, and switch the webhook off after that. Messages may come twice or out of order: use the event's id and its time.$$),
(123, 'guide', 'api', 'Error codes of the API',
$$TW-1001: the key is unknown or was withdrawn. TW-1004: the key is read-only. TW-2003: the project is archived; open it before adding time. TW-2010: the entry is approved and locked. TW-3002: the invoice is finalised; make a credit note. TW-3007: the buyer reference is missing. TW-4001: the VAT number has the wrong form. TW-5000: an error of ours; repeat with the same Idempotency-Key and nothing is done twice.$$),
(124, 'guide', 'billing', 'Plans and prices',
$$Free: two people, one client at a time, no approval. Team: 6 euros a person and month, everything but single sign-on, Peppol and nightly exports. Business: 11 euros a person and month, everything.

A person counts if they recorded time or signed in during the month. Paying by the year costs ten months. Charities get half off: write to us with a proof of status.$$),
(125, 'guide', 'billing', 'Changing or cancelling the plan',
$$Moving to a larger plan takes effect at once and is charged for the rest of the month by the day. Moving to a smaller one takes effect with the next month. Whatever the smaller plan does not include is switched off but not deleted.

Cancel under Settings → Plan. The workspace can then be read and exported for 90 days, and is deleted after that.$$),
(126, 'guide', 'integrations', 'Calendar connection',
$$Events of a connected calendar appear as grey suggestions in the week sheet; one click makes an entry of them. We read title, time and guests, and only of the calendars you choose. Private events show as "busy" without a title. Nothing is written to your calendar.

The connection must be renewed when you change the calendar account's password. Suggestions are refreshed every 15 minutes.$$),
(127, 'guide', 'integrations', 'Accounting software',
$$Finalised invoices and payments are passed to the accounting program every night at 02:00, or at once with "Send now". Accounts are chosen per tax rate under Settings → Accounting. An invoice that the program refuses stays in the list "Not sent" with the program's own message.

The file export for tax advisers in DATEV format contains the same entries, for months that are closed.$$),
(201, 'ticket', 'time', 'Timer shows minus one hour after the change to summer time',
$$Customer: on Sunday night my shift from 22:00 to 06:00 shows seven hours rather than eight. Is that a fault?

Support: no. The clocks went forward at 02:00, so seven hours passed. The entry stores both time zones' offsets. If your contract pays eight hours for that night, add a correction entry of one hour with the task "Allowance"; the rule in our article on time zones explains it.

Solved: the customer added the correction.$$),
(202, 'ticket', 'api', 'TW-5000 when creating many entries in parallel',
$$Customer: our nightly script makes 40 requests at the same time and about one in a hundred fails with TW-5000.

Support: two of the requests opened the same week sheet for the first time in the same moment. That was our fault and was fixed on 3 March. Until the fix reached everybody the way around was to repeat the request with the same Idempotency-Key, which creates nothing twice, and to keep to 20 requests at a time, the size of a burst.

Solved by the fix.$$),
(203, 'ticket', 'invoices', 'Invoice cannot be finalised: TW-3007',
$$Customer: the invoice to the city of Kiel cannot be finalised, error TW-3007.

Support: the client uses the format XRechnung, which demands a buyer reference, and the field is empty. Ask the city for its Leitweg-ID, enter it in the client's settings, and finalise again. The draft keeps its lines.

Solved.$$),
(204, 'ticket', 'accounts', 'Locked out after the phone was lost',
$$Customer: my phone was stolen, the authenticator app with it, and I printed no recovery codes. I am the only administrator.

Support: an administrator could switch two-factor authentication off for you, but there is no other one. We can help the owner only after a check of identity: a letter from the company's registered address with the code we send to the billing address. It took four working days.

Solved. Advice given: two administrators, and recovery codes in the safe.$$),
(205, 'ticket', 'data', 'Import says line 18,233 is wrong but the file looks fine',
$$Customer: the import of our old time sheets stops at line 18,233 with "hours are not a number".

Support: the line has 7,5 with a comma. Hours need a decimal point or hours:minutes, so 7.5 or 7:30. Nothing was imported, as an import is all or nothing. In the spreadsheet, set the column's format to English numbers before saving as CSV.

Solved.$$),
(206, 'ticket', 'invoices', 'Client was charged VAT though they are in Austria',
$$Customer: our invoice to a company in Vienna has 19 % VAT. We are in Germany and they gave us their VAT number.

Support: the client's tax rule was "domestic". It must be "European Union with VAT number". A finalised invoice cannot be changed: make a credit note, change the rule, and make the invoice again. It then carries no VAT and the sentence "Reverse charge".

Solved.$$),
(207, 'ticket', 'integrations', 'Calendar suggestions stopped on Tuesday',
$$Customer: since Tuesday there are no grey suggestions from my calendar.

Support: the connection was refused by the calendar's provider because the account's password was changed on Tuesday. Choose Profile → Calendar → Reconnect. Suggestions of the days between came back after the next refresh, within 15 minutes.

Solved.$$),
(208, 'ticket', 'api', 'Webhook was switched off over Christmas',
$$Customer: our webhook did not fire since 27 December.

Support: your server answered with status 503 from 24 December, and after two days of repeated attempts the webhook was switched off, with a message to the workspace's administrators. Switch it on again under Settings → Webhooks. To catch up, read the invoices with updated_since=2025-12-24.

Solved.$$),
(209, 'ticket', 'billing', 'Charged for a person who left',
$$Customer: we still pay for Ms Okafor, who left in May.

Support: a person counts in a month in which they recorded time or signed in. Her phone app was still signed in and synchronised on 2 June, which counts as signing in. We refunded June. Deactivate people under Settings → People when they leave: that signs out every device.

Solved, and the article on plans was made clearer.$$),
(210, 'ticket', 'time', 'Approved entry on the wrong project',
$$Customer: I put two days on the wrong project and my lead has approved them.

Support: approved entries are locked. Your project lead can open them again under Approvals → History, as they are not on an invoice yet. Then move them and submit the week again. Had they been invoiced, a credit note would have to come first.

Solved.$$),
(211, 'ticket', 'data', 'Where is the export from last week?',
$$Customer: the link to my export does not work any more.

Support: exported files are kept for 48 hours and the link with them. Start a new export; for your workspace it takes about ten minutes. For a copy every night, the Business plan can write to a bucket of your own.

Solved.$$),
(212, 'ticket', 'time', 'Hours are missing after reinstalling the phone app',
$$Customer: I had three days without a connection on a ship, and reinstalled the app when it showed an error. The hours are gone.

Support: entries that were not sent live only in the app, and removing it removes them. We looked and none of the three days had reached us. We are sorry. The app now warns before signing out while entries wait, but the phone's own dialog for removing an app cannot be changed by us.

Closed: the customer typed the hours again from the ship's log.$$),
(213, 'ticket', 'accounts', 'Everybody is asked to sign in again after the certificate changed',
$$Customer: since this morning single sign-on fails for everybody with "signature is not valid".

Support: your identity provider's certificate was renewed last night and the new one had not been uploaded here. An administrator marked as "emergency access" signed in with a password and uploaded it under Settings → Single sign-on. Upload the next one before the old one expires: both are accepted while both are valid.

Solved in 20 minutes.$$)
ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, product = excluded.product, title = excluded.title, body = excluded.body
  WHERE (articles.kind, articles.product, articles.title, articles.body)
        IS DISTINCT FROM (excluded.kind, excluded.product, excluded.title, excluded.body);

COMMIT;

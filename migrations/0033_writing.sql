-- An execution and its intent are rows of one transaction, and neither is ever deleted alone: the check a row cost a
-- tenth of what an order costs the database.
alter table execution drop constraint execution_intent_fkey;
